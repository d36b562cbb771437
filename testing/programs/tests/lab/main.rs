//! Labs, in which programs run live behind the switches of a fabric file, and simulations of the same files.

mod applications;
mod captures;
mod clocks;
mod dcbx;
mod ecn;
mod functions;
mod hosts;
mod infiniband;
mod infiniband_ip;
mod infiniband_shares;
mod lessons;
mod reach;
mod replay;
mod robust;
mod runs;
mod shares;
mod sweep;
