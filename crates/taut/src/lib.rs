//! Taut, an embedded analytical database whose physical table design is declared, visible and changeable.
