//! NVM Express: commands and completions, the data of Identify and Get Log Page, and how the three travel
//! over a fabric: over TCP in PDUs ([`tcp`]), over RDMA in messages whose data are named by keys ([`Sgl`]).
//!
//! Sections are of NVM Express Base 2.0 and, where said, of its command set, TCP and RDMA transport
//! specifications. All numbers are little-endian.

pub mod auth;
pub mod command;
pub mod completion;
pub mod discovery;
pub mod dsm;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log;
pub mod opcode;
pub mod property;
pub mod rdma;
pub mod reservation;
pub mod sgl;
pub mod status;
pub mod tcp;
pub mod text;

pub use command::{COMMAND_SIZE, Command, Fuse};
pub use completion::{COMPLETION_SIZE, Completion};
pub use opcode::{Admin, Direction, Fabrics, Io};
pub use sgl::{Sgl, SglError};
pub use status::Status;
