//! How rockery gets to users: packages, other distributions, containers, Kubernetes and Python.

mod arm;
mod bundled;
mod containers;
mod device_plugin;
mod dist;
mod distributions;
mod helm;
mod libraries;
mod makefile;
mod python;
