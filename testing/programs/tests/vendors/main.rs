//! The doctor: faults of hosts, links and switches that it names.

mod doctor_live;
mod doctor_mesh;
mod doctor_probe;
