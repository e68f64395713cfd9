//! Generators, the dumb model and agreement checks for the tests of every room.
