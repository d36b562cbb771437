//! A subsystem: an NQN with its namespaces and its allowed hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use wire::nvme::log::AnaState;

use super::Namespace;
use super::barrier::Underway;
use crate::auth::Credentials;
use crate::nqn::Nqn;

/// The hosts that may use a subsystem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hosts {
    /// Every host, with or without a name.
    Any,
    /// The hosts with these NQNs.
    Only(BTreeSet<Nqn>),
}

impl Hosts {
    /// Whether a host may use the subsystem; `None` is a host without an NQN.
    pub fn allow(&self, host: Option<&Nqn>) -> bool {
        match self {
            Self::Any => true,
            Self::Only(names) => host.is_some_and(|host| names.contains(host)),
        }
    }
}

/// A snapshot of the state of a subsystem.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) namespaces: BTreeMap<u32, Arc<Namespace>>,
    /// ANA states other than "optimized", by port and group.
    pub(crate) access: BTreeMap<(u16, u32), AnaState>,
    pub(crate) access_changes: u64,
    pub(crate) hosts: Hosts,
    /// Credentials by host. If there are any, only these hosts may connect.
    pub(crate) credentials: BTreeMap<Nqn, Credentials>,
}

impl Snapshot {
    /// The ANA state of a group on a port.
    pub(crate) fn access(&self, port: u16, group: u32) -> AnaState {
        self.access
            .get(&(port, group))
            .copied()
            .unwrap_or(AnaState::Optimized)
    }

    /// Whether a host with this NQN may connect, if it authenticates where that is required. A host without
    /// an NQN may connect only where every host may without authentication.
    pub(crate) fn may_come(&self, host: Option<&Nqn>) -> bool {
        let has_credentials = host.is_some_and(|host| self.credentials.contains_key(host));
        self.hosts.allow(host) && (self.credentials.is_empty() || has_credentials)
    }

    /// The namespace identifiers of each group that has a namespace.
    pub(crate) fn groups(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for namespace in self.namespaces.values() {
            groups
                .entry(namespace.group())
                .or_default()
                .push(namespace.nsid());
        }
        groups
    }
}

/// A subsystem whose state can change.
#[derive(Debug)]
pub struct Subsystem {
    name: Nqn,
    serial: String,
    model: String,
    /// The number of changes, so that queues notice them without a lock.
    generation: AtomicU64,
    snapshot: RwLock<Arc<Snapshot>>,
}

impl Subsystem {
    /// A subsystem without namespaces.
    pub fn new(name: Nqn, serial: String, model: String, hosts: Hosts) -> Self {
        let (namespaces, access, credentials) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let snapshot = Snapshot {
            namespaces,
            access,
            access_changes: 0,
            hosts,
            credentials,
        };
        let snapshot = RwLock::new(Arc::new(snapshot));
        Self {
            name,
            serial,
            model,
            generation: AtomicU64::new(0),
            snapshot,
        }
    }

    /// The subsystem with credentials: only these hosts may connect, and they have to authenticate.
    #[must_use]
    pub fn with_credentials(self, credentials: BTreeMap<Nqn, Credentials>) -> Self {
        self.change(|snapshot| snapshot.credentials = credentials);
        self
    }

    /// The NQN of the subsystem.
    pub fn name(&self) -> &Nqn {
        &self.name
    }

    /// The serial number (SN).
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// The model number (MN), at most 40 characters.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The allowed hosts.
    pub fn hosts(&self) -> Hosts {
        self.snapshot().hosts.clone()
    }

    /// The namespaces in ascending order of their identifiers.
    pub fn namespaces(&self) -> Vec<Arc<Namespace>> {
        self.snapshot().namespaces.values().cloned().collect()
    }

    /// The namespace with this identifier.
    pub fn namespace(&self, nsid: u32) -> Option<Arc<Namespace>> {
        self.snapshot().namespaces.get(&nsid).cloned()
    }

    /// Counts a command on each namespace that has not been removed.
    pub(super) fn begin_on_all(&self, stripe: usize) -> Vec<(Arc<Namespace>, Underway)> {
        let begin = |namespace: Arc<Namespace>| {
            let underway = Underway::new(&namespace, stripe);
            let is_here = self
                .namespace(namespace.nsid())
                .is_some_and(|it| Arc::ptr_eq(&it, &namespace));
            is_here.then_some((namespace, underway))
        };
        self.namespaces().into_iter().filter_map(begin).collect()
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Snapshot) -> T) -> T {
        let mut place = self
            .snapshot
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut snapshot = Snapshot::clone(&place);
        let result = change(&mut snapshot);
        *place = Arc::new(snapshot);
        self.generation.fetch_add(1, Ordering::SeqCst);
        result
    }

    pub(super) fn add(&self, namespace: Namespace) -> bool {
        let nsid = namespace.nsid();
        self.change(|snapshot| {
            let is_new = !snapshot.namespaces.contains_key(&nsid);
            if is_new {
                snapshot.namespaces.insert(nsid, Arc::new(namespace));
            }
            is_new
        })
    }

    pub(super) fn remove(&self, nsid: u32) -> Option<Arc<Namespace>> {
        self.change(|snapshot| snapshot.namespaces.remove(&nsid))
    }

    pub(super) fn set_access(&self, port: u16, group: u32, access: AnaState) {
        self.change(|snapshot| {
            snapshot.access_changes += 1;
            snapshot.access.insert((port, group), access);
        });
    }

    /// Sets the credentials of a host; `None` removes them.
    pub(super) fn set_credentials(&self, host: &Nqn, credentials: Option<Credentials>) {
        self.change(|snapshot| match credentials {
            Some(credentials) => _ = snapshot.credentials.insert(host.clone(), credentials),
            None => _ = snapshot.credentials.remove(host),
        });
    }

    pub(super) fn set_hosts(&self, hosts: Hosts) {
        self.change(|snapshot| snapshot.hosts = hosts);
    }
}
