//! The data path of a process that meets faults on purpose (`ROCKERY_FAULTS`) or is traced (`ROCKERY_TRACE`):
//! variants of the functions in the tables of contexts, completion queues and queue pairs. A process without
//! either has none of them in its tables, and looks for nothing on its data path.
//!
//! All other calls are exported functions, where [`ffi::exports!`] looks.

pub(crate) mod extended;
mod judge;
mod late;
pub(crate) mod poll;
mod receive;
pub(crate) mod register;
mod send;
pub(crate) mod tables;
