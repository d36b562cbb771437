//! Devices: verbs and the programs that use them, between namespaces, on one host and with the Linux kernel,
//! how programs find a device, and the harness of these tests.

mod arm;
mod borders;
mod calls;
mod check;
mod emulated;
mod examples;
mod faults;
mod features;
mod fio;
mod harness;
mod injected;
mod kernel;
mod log;
mod lookup;
mod many_queue_pairs;
mod names;
mod other_users;
mod peer;
mod perftest;
mod pingpong;
mod restricted;
mod same_host;
mod sanitizers;
mod scenes;
mod traced;
mod ucx;
