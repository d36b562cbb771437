//! The Python extension module `rockery._rockery`: experiments in virtual time, and their results as tables.
//! The package's Python files are in the folder `rockery` beside this one, and wrap this module.
#![forbid(unsafe_code)]

mod document;
mod html;
mod report;
mod table;
mod tables;

use pyo3::prelude::*;

/// The classes of the module.
#[pymodule]
fn _rockery(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add(
        "FabricError",
        module.py().get_type::<document::FabricError>(),
    )?;
    module.add_class::<document::Document>()?;
    module.add_class::<document::Stop>()?;
    module.add_class::<report::Report>()?;
    module.add_class::<report::Finding>()?;
    module.add_class::<table::Table>()?;
    module.add_function(wrap_pyfunction!(tables::tables_of, module)?)?;
    Ok(())
}
