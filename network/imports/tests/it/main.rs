//! Files of other simulators, written here by hand in their form: what the fabric file of each says, and what
//! the simulator makes of it.

mod chakra;
mod files;
mod garbage;
mod goal;
mod hpcc;
mod htsim;
mod nccl;
mod simai;
