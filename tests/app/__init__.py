"""Use cases by themselves, where no command needs to be run."""
