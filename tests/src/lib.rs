//! SQL logic tests: the runner and the files it runs.
