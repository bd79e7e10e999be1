"""The layers, one file for each family; users find them in `ddpflow.nn`."""
