//! FreeBSD hosts: `sysctl.conf` of the mlx5en driver.

pub(crate) mod dialect;
