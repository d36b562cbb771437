//! A subsystem: namespaces under a name, and who may have them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use wire::nvme::log::AnaState;

use super::Namespace;
use crate::auth::Credentials;
use crate::nqn::Nqn;

/// Who may use a subsystem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hosts {
    /// Everybody.
    Any,
    /// Those whose names are here.
    Only(BTreeSet<Nqn>),
}

impl Hosts {
    /// Whether this host may.
    pub fn allow(&self, host: &Nqn) -> bool {
        match self {
            Self::Any => true,
            Self::Only(names) => names.contains(host),
        }
    }
}

/// What a subsystem has at one time.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) namespaces: BTreeMap<u32, Arc<Namespace>>,
    /// What is not "optimized", by port and group.
    pub(crate) access: BTreeMap<(u16, u32), AnaState>,
    pub(crate) access_changes: u64,
    pub(crate) hosts: Hosts,
    /// When there are any, only hosts that have some may come.
    pub(crate) credentials: BTreeMap<Nqn, Credentials>,
}

impl Snapshot {
    /// How a group is reached through a port.
    pub(crate) fn access(&self, port: u16, group: u32) -> AnaState {
        self.access.get(&(port, group)).copied().unwrap_or(AnaState::Optimized)
    }

    /// Whether a host of this name may come, if it can prove that it is.
    pub(crate) fn may_come(&self, host: &Nqn) -> bool {
        self.hosts.allow(host) && (self.credentials.is_empty() || self.credentials.contains_key(host))
    }

    /// The namespaces of each group that has one.
    pub(crate) fn groups(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for namespace in self.namespaces.values() {
            groups.entry(namespace.group()).or_default().push(namespace.nsid());
        }
        groups
    }
}

/// Namespaces under a name.
#[derive(Debug)]
pub struct Subsystem {
    name: Nqn,
    serial: String,
    model: String,
    /// Counts changes, so that queues notice without locking.
    generation: AtomicU64,
    snapshot: RwLock<Arc<Snapshot>>,
}

impl Subsystem {
    /// A subsystem without namespaces.
    pub fn new(name: Nqn, serial: String, model: String, hosts: Hosts) -> Self {
        let (namespaces, access, credentials) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let snapshot = Snapshot { namespaces, access, access_changes: 0, hosts, credentials };
        let snapshot = RwLock::new(Arc::new(snapshot));
        Self { name, serial, model, generation: AtomicU64::new(0), snapshot }
    }

    /// The same, where hosts have to authenticate: those that have credentials here, and no others may come.
    #[must_use]
    pub fn with_credentials(self, credentials: BTreeMap<Nqn, Credentials>) -> Self {
        self.change(|snapshot| snapshot.credentials = credentials);
        self
    }

    /// Its name.
    pub fn name(&self) -> &Nqn {
        &self.name
    }

    /// Its serial number.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// Its model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Who may use it.
    pub fn hosts(&self) -> Hosts {
        self.snapshot().hosts.clone()
    }

    /// Its namespaces, lowest number first.
    pub fn namespaces(&self) -> Vec<Arc<Namespace>> {
        self.snapshot().namespaces.values().cloned().collect()
    }

    /// The namespace of this number.
    pub fn namespace(&self, nsid: u32) -> Option<Arc<Namespace>> {
        self.snapshot().namespaces.get(&nsid).cloned()
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Snapshot) -> T) -> T {
        let mut place = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        let mut snapshot = Snapshot::clone(&place);
        let result = change(&mut snapshot);
        *place = Arc::new(snapshot);
        self.generation.fetch_add(1, Ordering::Release);
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

    /// Says what a host proves itself with; with nothing, that it has nothing.
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
