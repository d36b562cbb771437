//! SONiC: `config_db.json`, and the outputs of its commands.

mod config;
pub(crate) mod dialect;
mod print;
pub(crate) mod shown;

pub use config::{SonicConfig, SonicPort, read};
