"""How the models that ship with minipaged are made. No part of the package."""
