"""Running a model on paged memory: scheduler, batch, attention, sampler, engine."""
