//! SONiC: `config_db.json`, and the outputs of its commands.
//!
//! SONiC's `config_db.json` (sonic-net, `sonic-yang-models`). The importer of fabric files reads the QoS
//! tables; ports, cables and buffer profiles are read here.

mod adaptive;
mod config;
mod entries;
mod group;
mod key_lines;
mod lookup;
mod parts;
mod pools;
mod print;
pub(crate) mod read;
mod reader;
pub(crate) mod remedy;
pub(crate) mod shown;
mod tables;
pub(crate) mod write;

pub use config::{SonicConfig, SonicPort};
pub use parts::Part;
pub use reader::{read, read_files};
