//! Subnets as a manager sees them: directed routes, tables, states of links, traps and keys.

mod management;
mod net;
mod traps;
