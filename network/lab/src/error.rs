//! Errors of labs.

use std::io;

/// An error of a lab, with a remedy where there is one.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The machine has no user namespaces for ordinary users.
    #[error(
        "this machine allows no user namespaces ({0}), which hosts of a lab are made of: set \
         user.max_user_namespaces above 0, and where AppArmor restricts them (Ubuntu 24.04) \
         kernel.apparmor_restrict_unprivileged_userns=0; in a chroot there are none, so use a container; \
         `rockery sim` works without them"
    )]
    UserNamespaces(#[source] io::Error),
    /// A host could not be made.
    #[error("host {host} cannot be made: {what}")]
    Host {
        /// The name of the host.
        host: String,
        /// The step that failed, and why.
        what: String,
    },
    /// More hosts than a lab can have.
    #[error(
        "the file has {hosts} hosts, and a lab {max} live ones at most: set `live = true` for some hosts of \
         the file, the others are then simulated"
    )]
    TooMany {
        /// The hosts of the file.
        hosts: usize,
        /// Live hosts of a lab at most.
        max: usize,
    },
    /// A live host without a link.
    #[error("host {0} has no link: give it a [[link]], or leave it out of the lab")]
    NotConnected(String),
    /// Adapters that programs cannot be.
    #[error("host {0} has protocol = \"tcp\" or headers of fixed sizes: a live host has neither")]
    Adapter(String),
    /// A changed property of a link that does not exist, or that no link has.
    #[error("{0}")]
    Link(String),
    /// A function has the MAC address of another host.
    #[error("{one} and {other} have one MAC address: set another `mac` for the function, or none")]
    Mac {
        /// The first host with the address.
        one: String,
        /// The other host that has it.
        other: String,
    },
    /// The file has a mistake.
    #[error(transparent)]
    File(#[from] fabric_file::FileError),
    /// The scenario does not fit together.
    #[error(transparent)]
    Scenario(#[from] sim::world::ScenarioError),
    /// A lab of this name runs already.
    #[error("a lab called {0} runs already: `rockery lab down {0}`, or choose another --name")]
    Runs(String),
    /// No lab runs.
    #[error("no lab runs in this network namespace: start one with `rockery lab up FILE`")]
    None,
    /// The lab ended before it answered.
    #[error("the lab ended before it answered: `rockery lab up` starts one")]
    Ended,
    /// No lab has this name.
    #[error("no lab is called {name}; there are: {there}")]
    NoSuchLab {
        /// The requested name.
        name: String,
        /// Those that run.
        there: String,
    },
    /// Several labs run.
    #[error("several labs run: choose one with --lab, of {0}")]
    Several(String),
    /// The lab has refused a request; its answer.
    #[error("{0}")]
    Refused(String),
    /// Another user has taken the name of the socket.
    #[error("user {0} listens at the lab's socket: choose another --name")]
    Foreign(u32),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl LabError {
    /// Whether no such lab runs, or not any more.
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::None | Self::NoSuchLab { .. } | Self::Ended)
    }

    /// For `map_err` after a system call.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
