"""The words that a story can choose among: one table for each thing that it has to remember.

No word of a table is the beginning of another one, so the first mention tells the row. Words serve
in several tables where they can: the fewer there are, the more of them become one token.
"""

from __future__ import annotations

from typing import Final

from training.storyteller.notation import Slot

_SHE = "Ada, Bella, Clara, Dora, Emma, Flora, Greta, Hanna, Iris, Julia, Lily, Mia, Nora, Penny, \
Rosa, Ruby, Sally, Tilda, Vera, Zoe"
_HE = "Albert, Ben, Carl, David, Emil, Felix, George, Hugo, Jack, Leo, Max, Nick, Oscar, Paul, \
Ralph, Sam, Tom, Victor, Walter, Zack"


def _names(names: str, he: str, his: str) -> list[dict[str, str]]:
    return [{"name": name.strip(), "he": he, "his": his} for name in names.split(",")]


def _deeds(pairs: str) -> list[dict[str, str]]:
    return [dict(zip(("do", "did"), pair.split(), strict=True)) for pair in pairs.split(",")]


SLOTS: Final = (
    Slot("name", (*_names(_SHE, "she", "her"), *_names(_HE, "he", "his"))),
    Slot("deed", tuple(_deeds("show showed, bring brought, give gave, carry carried, lend lent"))),
    # who the story is about, and who helps: never one kind
    Slot.of_words(
        "kind",
        "badger, bear, beaver, cat, cow, deer, dog, donkey, duck, elephant, fox, frog, goat, "
        "goose, hare, hedgehog, hen, horse, lamb, lion, mouse, otter, panda, penguin, pig, pony, "
        "rabbit, sheep, squirrel, tiger, turtle, wolf",
    ),
    Slot.of_words(
        "helper",
        "baker, crow, eagle, farmer, giant, heron, mole, owl, ox, painter, raven, robin, sailor, "
        "sparrow, stork, swan, toad, wizard",
    ),
    # what can be carried, and how it looks
    Slot.of_words(
        "thing",
        "ball, basket, bell, blanket, book, bottle, box, button, candle, clock, coat, coin, cup, "
        "doll, drum, feather, flag, flute, hat, jar, key, kite, lantern, map, marble, mirror, "
        "pearl, pillow, puppet, ring, scarf, shell, spoon, teapot, trumpet, umbrella",
    ),
    Slot.of_words("color", "black, blue, brown, golden, gray, green, pink, red, silver, white"),
    # where the story begins, where it leads, and who waits there
    Slot.of_words(
        "home",
        "deep valley, grassy hill, little creek, old oak, quiet pond, rose garden, round barn, "
        "stone wall, sunny field, tall elm, warm spring, wooden gate",
    ),
    Slot.of_words(
        "goal",
        "bakery, beach, bridge, castle, cave, farm, harbor, inn, island, lake, market, mill, "
        "orchard, palace, school, station, tower, village",
    ),
    Slot.of_words(
        "person",
        "aunt, brother, cousin, father, grandfather, grandmother, mother, sister, teacher, uncle",
    ),
    # what stands in the way
    Slot.of_words("tree", "birch, cedar, maple, pine, willow"),
    Slot.of_words("water", "brook, pool, river, stream, swamp"),
    Slot.of_words("thief", "goblin, magpie, monkey, pirate, rat"),
    Slot.of_words("block", "barrel, cart, log, rock, wagon"),
    Slot.of_words("veil", "fog, mist, rain, smoke, snow"),
    Slot.of_words("hole", "ditch, hole, pit, tunnel, well"),
)
