//! A namespace: logical blocks that a subsystem offers.

use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use wire::nvme::Status;
use wire::nvme::command::Blocks;

use super::aborted::Aborted;
use super::atomic_file::AtomicFile;
use super::epochs::Epochs;
use super::gate::{Effect, Exclusion, Gate, Scope};
use super::reservation::Reservations;
use crate::identifier::{Nguid, Serial, Uuid};
use crate::latency::Observed;
use crate::limits::BARRIER_TIMEOUT;
use crate::machine::MachineId;
use crate::nqn::Nqn;
use crate::store::Store;

/// The globally unique identifiers of a namespace, the same over restarts and on every path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The UUID (RFC 9562), as Identify reports it.
    pub uuid: [u8; 16],
    /// The NGUID: 16 bytes, as Identify reports it.
    pub nguid: [u8; 16],
}

impl Identity {
    /// Identifiers that no other disk has: they depend on the machine, on the name of the subsystem, on the
    /// namespace identifier, and on the lasting name of the storage.
    pub fn of_storage(machine: &MachineId, subsystem: &Nqn, nsid: u32, lasting_name: &str) -> Self {
        let derive = |kind: &str| {
            machine.derive(kind, &[subsystem.as_str(), &nsid.to_string(), lasting_name])
        };
        Self {
            uuid: Uuid::of_hash(derive("uuid")).bytes(),
            nguid: derive("nguid"),
        }
    }

    /// The given identifiers. If only one is given, the other one is derived from it, so that paths to one
    /// disk have to agree on one of them only. `None` if none is given.
    pub fn given(uuid: Option<Uuid>, nguid: Option<Nguid>) -> Option<Self> {
        let hash = |kind: &str, of: String| first_half(format!("rockery {kind} of {of}"));
        let (uuid, nguid) = match (uuid, nguid) {
            (Some(uuid), Some(nguid)) => (uuid, nguid),
            (Some(uuid), None) => (uuid, hash("nguid", uuid.to_string()).into()),
            (None, Some(nguid)) => (Uuid::of_hash(hash("uuid", nguid.to_string())), nguid),
            (None, None) => return None,
        };
        Some(Self {
            uuid: uuid.bytes(),
            nguid: nguid.bytes(),
        })
    }

    /// The identifiers that depend on the names alone, as those of servers before they depended on machine
    /// and storage. Two servers have the same ones for different disks.
    pub fn of(subsystem: &Nqn, nsid: u32) -> Self {
        let hash = |kind: &str| first_half(format!("rockery {kind} {subsystem} {nsid}"));
        Self {
            uuid: Uuid::of_hash(hash("uuid")).bytes(),
            nguid: hash("nguid"),
        }
    }
}

/// The serial number of a subsystem when it depended on the name alone.
pub fn former_serial(subsystem: &Nqn) -> Serial {
    Serial::of_hash(first_half(subsystem.to_string()))
}

/// The first half of a SHA-256 digest.
fn first_half(text: String) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::digest(text)[..16]);
    bytes
}

/// Counters of a namespace.
#[derive(Debug, Default)]
pub struct Counters {
    /// Number of Read commands.
    pub reads: AtomicU64,
    /// Number of Write commands.
    pub writes: AtomicU64,
    /// Commands that neither read nor wrote blocks.
    pub others: AtomicU64,
    /// Bytes read by hosts.
    pub read_bytes: AtomicU64,
    /// Bytes written by hosts.
    pub written_bytes: AtomicU64,
    /// Commands with an error status.
    pub errors: AtomicU64,
}

/// A namespace: its blocks, their store, and the state that hosts have set.
#[derive(Debug)]
pub struct Namespace {
    nsid: u32,
    identity: Identity,
    shift: u8,
    group: u32,
    read_only: bool,
    // Write protection, which hosts set; `read_only` is set by the configuration.
    protected: AtomicBool,
    blocks: AtomicU64,
    store: Store,
    reservations: Mutex<Reservations>,
    // The type of the reservation in `reservations`, so that commands take no lock while there is none.
    reserved: AtomicU8,
    gate: Gate,
    resize_turn: Mutex<()>,
    /// Commands that are executed, which changes of rights wait for.
    pub(super) epochs: Epochs,
    pub(super) aborted: Aborted,
    /// The counters of the namespace.
    pub counters: Counters,
    observed: Arc<Observed>,
    reservation_file: Option<AtomicFile>,
    protection_file: Option<AtomicFile>,
}

impl Namespace {
    /// A namespace of `bytes / block_size` blocks. The block size is a power of two.
    pub fn new(nsid: u32, identity: Identity, block_size: u32, bytes: u64, store: Store) -> Self {
        let shift = block_size.trailing_zeros() as u8;
        Self {
            nsid,
            identity,
            shift,
            group: 1,
            read_only: false,
            protected: AtomicBool::new(false),
            blocks: AtomicU64::new(bytes >> shift),
            store,
            reservations: Mutex::default(),
            reserved: AtomicU8::new(0),
            gate: Gate::default(),
            resize_turn: Mutex::default(),
            epochs: Epochs::default(),
            aborted: Aborted::default(),
            counters: Counters::default(),
            observed: Arc::default(),
            reservation_file: None,
            protection_file: None,
        }
    }

    /// The namespace with another ANA group, and read-only or not.
    #[must_use]
    pub fn with(self, group: u32, read_only: bool) -> Self {
        Self {
            group,
            read_only,
            ..self
        }
    }

    /// The namespace with files in a folder that keep reservations and write protection through power loss;
    /// loads what they contain. The files are named after the subsystem and the namespace identifier, so that
    /// what hosts have set stays when the file of the namespace is restored as another one.
    ///
    /// # Errors
    /// When a file exists and cannot be read.
    pub fn persisted_in(self, folder: &Path, subsystem: &Nqn) -> std::io::Result<Self> {
        let key = Identity::of(subsystem, self.nsid).uuid;
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = |kind: &str| AtomicFile::new(folder.join(format!("{key}.{kind}.json")));
        let (reservation_file, protection_file) = (file("reservations"), file("protection"));
        let protected = AtomicBool::new(protection_file.load()?.unwrap_or(false));
        let reservations = match reservation_file.load()? {
            Some(stored) => Reservations::from_persistent(stored),
            None => Reservations::persistable(),
        };
        let reserved = AtomicU8::new(reservations.kind().map_or(0, |kind| kind as u8));
        let reservations = Mutex::new(reservations);
        let (reservation_file, protection_file) = (Some(reservation_file), Some(protection_file));
        Ok(Self {
            reservations,
            reserved,
            reservation_file,
            protected,
            protection_file,
            ..self
        })
    }

    /// Removes the files with its persistent state, so that a later namespace of the same identifier does not
    /// inherit it.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn forget(&self) -> std::io::Result<()> {
        let files = [&self.reservation_file, &self.protection_file];
        files
            .into_iter()
            .flatten()
            .try_for_each(|file| file.store(None::<&bool>))
    }

    /// The namespace identifier (NSID).
    pub fn nsid(&self) -> u32 {
        self.nsid
    }

    /// The identifiers of the namespace.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The ANA group identifier.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Whether writes are refused, by the configuration or by write protection.
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.protected.load(Ordering::SeqCst)
    }

    /// Whether the configuration makes it read-only, so that hosts cannot change that.
    pub(crate) fn is_always_read_only(&self) -> bool {
        self.read_only
    }

    /// Sets or clears write protection, which hosts request. It persists through power loss if there is a
    /// file for it.
    pub(crate) fn protect(&self, protect: bool) -> Result<(), Status> {
        if self.read_only {
            return Err(Status::FEATURE_NOT_CHANGEABLE.permanent());
        }
        if let Some(file) = &self.protection_file {
            file.store(protect.then_some(&true))
                .map_err(|_| Status::INTERNAL_ERROR)?;
        }
        self.protected.store(protect, Ordering::SeqCst);
        Ok(())
    }

    /// The logical block size, as a power of two.
    pub fn shift(&self) -> u8 {
        self.shift
    }

    /// The size in logical blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::SeqCst)
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks() << self.shift
    }

    /// Latency histograms of its commands.
    pub fn observed(&self) -> &Arc<Observed> {
        &self.observed
    }

    /// The store of the blocks.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Excludes all changes of the medium, after those that have begun, as long as the result lives. The
    /// thread must not own an [`Admitted`] command.
    pub(crate) fn exclude_changes(&self) -> Exclusion<'_> {
        self.gate.exclude(Scope::Changes)
    }

    /// Excludes all commands, after those that were admitted have had their effect, as long as the result
    /// lives. The thread must not own an [`Admitted`] command.
    pub(crate) fn exclude_commands(&self) -> Exclusion<'_> {
        self.gate.exclude(Scope::All)
    }

    /// The number of commands that act on the medium, or wait until they may.
    pub fn in_flight(&self) -> u64 {
        self.gate.in_flight()
    }

    /// Changes its size, in bytes, when the commands that began before have ended: none of them reaches
    /// blocks that the namespace does not have any more.
    ///
    /// # Errors
    /// The error of the store, or when commands do not end.
    pub fn resize(&self, bytes: u64) -> std::io::Result<()> {
        let before = self.blocks();
        self.blocks.fetch_min(bytes >> self.shift, Ordering::SeqCst);
        let resize = || {
            let _alone = self.exclude_commands();
            self.store.resize(bytes)
        };
        // Before the exclusion: the commands that it would wait for may wait for it.
        if let Err(error) = self.drain().and_then(|()| resize()) {
            self.blocks.store(before, Ordering::SeqCst);
            return Err(error);
        }
        self.blocks.store(bytes >> self.shift, Ordering::SeqCst);
        Ok(())
    }

    /// Keeps other changes of the size away that take turns too.
    pub(crate) fn resize_turn(&self) -> MutexGuard<'_, ()> {
        self.resize_turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn drain(&self) -> std::io::Result<()> {
        if self.epochs.drain(&self.epochs.close(None), BARRIER_TIMEOUT) {
            return Ok(());
        }
        let seconds = BARRIER_TIMEOUT.as_secs();
        let text = format!(
            "its disk has not executed commands of before within {seconds} s; nothing changed"
        );
        Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text))
    }

    /// The first byte and the length in bytes of a range of blocks.
    pub(crate) fn range(&self, blocks: Blocks) -> Result<(u64, u64), Status> {
        let end = blocks.start.checked_add(u64::from(blocks.count));
        match end {
            Some(end) if end <= self.blocks() => Ok((
                blocks.start << self.shift,
                u64::from(blocks.count) << self.shift,
            )),
            _ => Err(Status::LBA_OUT_OF_RANGE.permanent()),
        }
    }

    /// Whether the reservation allows a host to read or write.
    #[inline]
    pub(crate) fn permits(&self, host: &[u8; 16], write: bool) -> bool {
        self.reserved.load(Ordering::SeqCst) == 0 || self.lock_reservations().permit(host, write)
    }

    fn lock_reservations(&self) -> MutexGuard<'_, Reservations> {
        self.reservations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether reservations can persist through power loss.
    pub(crate) fn persists_reservations(&self) -> bool {
        self.reservation_file.is_some()
    }

    /// Reads the reservations.
    pub(crate) fn reservations<T>(&self, look: impl FnOnce(&Reservations) -> T) -> T {
        look(&self.lock_reservations())
    }

    /// Changes the reservations. A persistent change is on the medium when this returns.
    pub(crate) fn change_reservations<T>(
        &self,
        change: impl FnOnce(&mut Reservations) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let mut reservations = self.lock_reservations();
        let mut changed = reservations.clone();
        let result = change(&mut changed)?;
        if let Some(file) = &self.reservation_file
            && (changed.persists() || reservations.persists())
            && changed != *reservations
        {
            // A change that could not be written is not made.
            file.store(changed.to_persistent().as_ref())
                .map_err(|_| Status::INTERNAL_ERROR)?;
        }
        *reservations = changed;
        self.reserved.store(
            reservations.kind().map_or(0, |kind| kind as u8),
            Ordering::SeqCst,
        );
        Ok(result)
    }
}

/// A command that may act on a namespace, counted until this is dropped. The owner drops it when the command
/// has had its whole effect on the medium, not before.
#[derive(Debug)]
pub(crate) struct Admitted {
    namespace: Arc<Namespace>,
    effect: Effect,
}

impl Admitted {
    /// Admits a command if nothing excludes it.
    ///
    /// # Errors
    /// The namespace, when the command has to wait for its turn.
    pub(crate) fn at_once(
        namespace: Arc<Namespace>,
        effect: Effect,
    ) -> Result<Self, Arc<Namespace>> {
        if namespace.gate.try_pass(effect) {
            Ok(Self { namespace, effect })
        } else {
            Err(namespace)
        }
    }

    /// Admits a command when it is its turn. The thread must not own another admitted command.
    pub(crate) fn in_turn(namespace: Arc<Namespace>, effect: Effect) -> Self {
        namespace.gate.pass(effect);
        Self { namespace, effect }
    }
}

impl Deref for Admitted {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.namespace
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.namespace.gate.leave(self.effect);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// Identifiers are equal where machine, subsystem, number and storage are, and different otherwise.
        #[test]
        fn identifiers_depend_on_all_that_tells_disks_apart(
            one in (0..3_u8, "[ab]{1,2}", 1..4_u32, "[ab]{0,2}"),
            other in (0..3_u8, "[ab]{1,2}", 1..4_u32, "[ab]{0,2}"),
        ) {
            let identity = |(machine, name, nsid, medium): &(u8, String, u32, String)| {
                let name = format!("nqn.2024-01.org.example:{name}").parse().unwrap();
                Identity::of_storage(&[*machine; 16].into(), &name, *nsid, medium)
            };
            let (first, second) = (identity(&one), identity(&other));
            proptest::prop_assert_eq!(first, identity(&one));
            proptest::prop_assert_eq!(first.uuid == second.uuid, one == other);
            proptest::prop_assert_eq!(first.nguid == second.nguid, one == other);
            let machine_apart = identity(&(9, one.1.clone(), one.2, one.3.clone()));
            let storage_apart = identity(&(one.0, one.1.clone(), one.2, format!("{}c", one.3)));
            for apart in [machine_apart, storage_apart] {
                proptest::prop_assert!(apart.uuid != first.uuid && apart.nguid != first.nguid);
            }
        }
    }

    #[test]
    fn one_given_identifier_determines_the_other() {
        let (uuid, nguid) = (Uuid::from([1; 16]), Nguid::from([2; 16]));
        assert_eq!(Identity::given(None, None), None);
        let both = Identity {
            uuid: [1; 16],
            nguid: [2; 16],
        };
        assert_eq!(Identity::given(Some(uuid), Some(nguid)), Some(both));
        let of_uuid = Identity::given(Some(uuid), None).unwrap();
        assert_eq!(
            (of_uuid.uuid, Identity::given(Some(uuid), None)),
            ([1; 16], Some(of_uuid))
        );
        let of_nguid = Identity::given(None, Some(nguid)).unwrap();
        assert_eq!(of_nguid.nguid, [2; 16]);
        assert_ne!(
            Identity::given(Some([3; 16].into()), None).unwrap().nguid,
            of_uuid.nguid
        );
    }

    #[test]
    fn protection_stays_until_the_namespace_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let name: Nqn = "nqn.2024-01.org.example:disk".parse().unwrap();
        // Another file has other identifiers, and the same protection.
        let number = std::cell::Cell::new(0);
        let started = || {
            let machine = [7; 16].into();
            let medium = number.replace(number.get() + 1).to_string();
            let identity = Identity::of_storage(&machine, &name, 1, &medium);
            Namespace::new(1, identity, 512, 512, Store::Null)
                .persisted_in(folder.path(), &name)
                .unwrap()
        };
        let namespace = started();
        assert!(!namespace.is_read_only());
        namespace.protect(true).unwrap();
        assert!(namespace.is_read_only() && started().is_read_only());
        namespace.protect(false).unwrap();
        assert!(!started().is_read_only());
        namespace.protect(true).unwrap();
        namespace.forget().unwrap();
        assert!(!started().is_read_only());
    }
}
