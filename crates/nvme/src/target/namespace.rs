//! A namespace: blocks that a subsystem offers.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use wire::nvme::Status;
use wire::nvme::command::Blocks;

use super::keeper::Keeper;
use super::reservation::Reservations;
use crate::latency::Observed;
use crate::nqn::Nqn;
use crate::store::Store;

/// How a namespace is known, over restarts and over every path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// A UUID.
    pub uuid: [u8; 16],
    /// The NGUID.
    pub nguid: [u8; 16],
}

impl Identity {
    /// An identity that depends on nothing but these names, so that a target that starts again offers the
    /// same
    /// disk: a UUID of version 8 (RFC 9562, 5.8) from a hash.
    pub fn of(subsystem: &Nqn, nsid: u32) -> Self {
        let hash = |kind: &str| {
            let digest = Sha256::digest(format!("rockery {kind} {subsystem} {nsid}"));
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&digest[..16]);
            bytes
        };
        Self::from_uuid(hash("uuid"), hash("nguid"))
    }

    /// The UUID in hexadecimal digits.
    pub fn to_text(self) -> String {
        self.uuid.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn from_uuid(mut uuid: [u8; 16], nguid: [u8; 16]) -> Self {
        uuid[6] = 0x80 | uuid[6] & 0x0f;
        uuid[8] = 0x80 | uuid[8] & 0x3f;
        Self { uuid, nguid }
    }
}

/// What has been done with a namespace.
#[derive(Debug, Default)]
pub struct Counters {
    /// Commands that read.
    pub reads: AtomicU64,
    /// Commands that wrote.
    pub writes: AtomicU64,
    /// Other commands.
    pub others: AtomicU64,
    /// Bytes that were read.
    pub read_bytes: AtomicU64,
    /// Bytes that were written.
    pub written_bytes: AtomicU64,
    /// Commands that failed.
    pub errors: AtomicU64,
}

/// Blocks, where they are, and who may use them.
#[derive(Debug)]
pub struct Namespace {
    nsid: u32,
    identity: Identity,
    shift: u8,
    group: u32,
    read_only: bool,
    // Set by hosts, where `read_only` is set by whoever serves it.
    protected: AtomicBool,
    blocks: AtomicU64,
    store: Store,
    reservations: Mutex<Reservations>,
    // What `reservations` has, so that nobody locks it while there is none.
    reserved: AtomicU8,
    pub(crate) fusing: Fusing,
    /// What has been done with it.
    pub counters: Counters,
    observed: Arc<Observed>,
    keeper: Option<Keeper>,
    protection_keeper: Option<Keeper>,
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
            fusing: Fusing::default(),
            counters: Counters::default(),
            observed: Arc::default(),
            keeper: None,
            protection_keeper: None,
        }
    }

    /// The same, in another group of asymmetric access, and perhaps not to be written.
    #[must_use]
    pub fn with(self, group: u32, read_only: bool) -> Self {
        Self { group, read_only, ..self }
    }

    /// The same, with files in a folder that keep reservations and write protection when the power goes; what
    /// they have holds.
    ///
    /// # Errors
    /// When a file is there and cannot be read.
    pub fn kept_in(self, folder: &Path) -> std::io::Result<Self> {
        let file = |kind: &str| Keeper::new(folder.join(format!("{}.{kind}.json", self.identity.to_text())));
        let (keeper, protection_keeper) = (file("reservations"), file("protection"));
        let protected = AtomicBool::new(protection_keeper.kept()?.unwrap_or(false));
        let reservations = match keeper.kept()? {
            Some(kept) => Reservations::from_kept(kept),
            None => Reservations::that_can_persist(),
        };
        let reserved = AtomicU8::new(reservations.kind().map_or(0, |kind| kind as u8));
        let reservations = Mutex::new(reservations);
        let (keeper, protection_keeper) = (Some(keeper), Some(protection_keeper));
        Ok(Self { reservations, reserved, keeper, protected, protection_keeper, ..self })
    }

    /// It is removed: nothing of it is kept for whatever gets its number.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn forget(&self) -> std::io::Result<()> {
        let keepers = [&self.keeper, &self.protection_keeper];
        keepers.into_iter().flatten().try_for_each(|keeper| keeper.keep(None::<&bool>))
    }

    /// Its number.
    pub fn nsid(&self) -> u32 {
        self.nsid
    }

    /// How it is known.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Its group.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Whether it may not be written.
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.protected.load(Ordering::Relaxed)
    }

    /// Protects it from being written, or lets it be written again, as hosts ask for. What is protected stays
    /// so when the power goes, if there is something to keep that in.
    pub(crate) fn protect(&self, protect: bool) -> Result<(), Status> {
        if self.read_only {
            return Err(Status::FEATURE_NOT_CHANGEABLE.permanent());
        }
        if let Some(keeper) = &self.protection_keeper {
            keeper.keep(protect.then_some(&true)).map_err(|_| Status::INTERNAL_ERROR)?;
        }
        self.protected.store(protect, Ordering::Relaxed);
        Ok(())
    }

    /// Its block size, as a power of two.
    pub fn shift(&self) -> u8 {
        self.shift
    }

    /// Its blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks() << self.shift
    }

    /// How long its commands take.
    pub fn observed(&self) -> &Arc<Observed> {
        &self.observed
    }

    /// Where they are.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Changes its size, in bytes.
    ///
    /// # Errors
    /// As the store.
    pub fn resize(&self, bytes: u64) -> std::io::Result<()> {
        if bytes < self.bytes() {
            self.blocks.store(bytes >> self.shift, Ordering::Relaxed);
        }
        self.store.resize(bytes)?;
        self.blocks.store(bytes >> self.shift, Ordering::Relaxed);
        Ok(())
    }

    /// Where these blocks begin and how many bytes they are.
    pub(crate) fn range(&self, blocks: Blocks) -> Result<(u64, u64), Status> {
        let end = blocks.start.checked_add(u64::from(blocks.count));
        match end {
            Some(end) if end <= self.blocks() => {
                Ok((blocks.start << self.shift, u64::from(blocks.count) << self.shift))
            }
            _ => Err(Status::LBA_OUT_OF_RANGE.permanent()),
        }
    }

    /// Whether a host may read or write just now.
    #[inline]
    pub(crate) fn permits(&self, host: &[u8; 16], write: bool) -> bool {
        self.reserved.load(Ordering::Acquire) == 0 || self.lock_reservations().permit(host, write)
    }

    fn lock_reservations(&self) -> MutexGuard<'_, Reservations> {
        self.reservations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether reservations can stay when the power goes.
    pub(crate) fn keeps_reservations(&self) -> bool {
        self.keeper.is_some()
    }

    /// Looks at the reservations.
    pub(crate) fn reservations<T>(&self, look: impl FnOnce(&Reservations) -> T) -> T {
        look(&self.lock_reservations())
    }

    /// Changes the reservations. What is to stay when the power goes has been written when this returns.
    pub(crate) fn change_reservations<T>(
        &self,
        change: impl FnOnce(&mut Reservations) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let mut reservations = self.lock_reservations();
        let mut changed = reservations.clone();
        let result = change(&mut changed)?;
        if let Some(keeper) = &self.keeper
            && (changed.persists() || reservations.persists())
            && changed != *reservations
        {
            // What could not be written has not happened.
            keeper.keep(changed.to_keep().as_ref()).map_err(|_| Status::INTERNAL_ERROR)?;
        }
        *reservations = changed;
        self.reserved.store(reservations.kind().map_or(0, |kind| kind as u8), Ordering::Release);
        Ok(result)
    }
}

/// Keeps writes away from Compare and Write. Where none has ever come, a write pays two additions; from the
/// first on, writes take turns.
#[derive(Debug, Default)]
pub(crate) struct Fusing {
    has_come: AtomicBool,
    /// Writes that began before they saw that one has come.
    free_writes: AtomicU32,
    turn: Mutex<()>,
}

impl Fusing {
    /// Begins a write that takes no turn; [`Fusing::end_free`] has to follow. `false` when it has to take
    /// one.
    pub(crate) fn begin_free(&self) -> bool {
        // Both sides announce themselves before they look at the other: one of them sees the other.
        self.free_writes.fetch_add(1, Ordering::SeqCst);
        let is_free = !self.has_come.load(Ordering::SeqCst);
        if !is_free {
            self.end_free();
        }
        is_free
    }

    pub(crate) fn end_free(&self) {
        self.free_writes.fetch_sub(1, Ordering::SeqCst);
    }

    /// A turn, for a write that is not free.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn for Compare and Write, when all free writes have ended. They do: no more begin, and whoever
    /// began one waits for nothing but a disk.
    pub(crate) fn turn_of_pair(&self) -> MutexGuard<'_, ()> {
        self.has_come.store(true, Ordering::SeqCst);
        while self.free_writes.load(Ordering::SeqCst) != 0 {
            std::thread::sleep(std::time::Duration::from_micros(20));
        }
        self.turn()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protection_stays_until_the_namespace_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let identity = Identity::of(&"nqn.2024-01.org.example:disk".parse().unwrap(), 1);
        let started = || Namespace::new(1, identity, 512, 512, Store::Null).kept_in(folder.path()).unwrap();
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
