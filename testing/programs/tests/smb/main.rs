//! SMB Direct: gateway and dial, with Samba and with the Linux kernel.

mod clients;
mod control;
mod faults;
mod flood;
mod kernel;
mod observed;
mod relay;
mod samba;
mod unreachable;
mod wrong_keys;
