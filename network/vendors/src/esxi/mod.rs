//! VMware ESXi: parameters of NVIDIA's native driver, and outputs of `esxcli` (NVIDIA, "NATIVE Driver for
//! VMware vSphere User Manual": Module Parameters; layouts of outputs: Cisco UCS Manager, "RoCEv2
//! configuration guide").

pub(crate) mod read;
pub(crate) mod shown;
pub(crate) mod write;
