//! Rules as users write them: every mistake has its remedy, every rule is read as it is written, and no text
//! makes the reader fail in another way.

mod mistakes;
mod round_trips;
