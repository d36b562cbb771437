//! The C ABI of `libibverbs` and `librdmacm`, as programs were compiled against it: structs, constants, and
//! (in `symbols/`) the names and versions that the dynamic loader looks for. No code.
//!
//! Names are those of `infiniband/verbs.h` and `rdma/rdma_cma.h` of rdma-core 44, whose manual pages say what
//! each field means. Values that C code writes are integers with constants, not Rust enums: a program may
//! write anything.
#![no_std]
#![forbid(unsafe_code)]
// Types and fields are documented where they come from: verbs.h and its manual pages.
#![allow(missing_docs, non_camel_case_types)]

mod attr;
mod cma;
mod context;
mod layout;
mod object;
mod value;
mod work;

pub use attr::*;
pub use cma::*;
pub use context::*;
pub use layout::{LAYOUTS, Layout};
pub use object::*;
pub use value::*;
pub use work::*;
