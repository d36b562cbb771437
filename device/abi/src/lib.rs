//! The C ABI of `libibverbs` and `librdmacm`: structs, constants, and (in `symbols/`) the names and versions
//! that the dynamic loader resolves. Its only functions give values their names.
//!
//! Names are those of `infiniband/verbs.h` and `rdma/rdma_cma.h` of rdma-core 44, whose manual pages document
//! the fields. Values that C code writes are integers with constants, not Rust enums, because a program may
//! write any value.
#![no_std]
#![forbid(unsafe_code)]
// Types and fields are documented in verbs.h, rdma_cma.h and their manual pages.
#![allow(missing_docs, non_camel_case_types)]

mod attr;
mod cma;
mod context;
mod layout;
pub mod names;
mod object;
mod value;
mod work;

pub use attr::*;
pub use cma::*;
pub use context::*;
pub use layout::{LAYOUTS, LAYOUTS_OF_ARM, Layout};
pub use object::*;
pub use value::*;
pub use work::*;
