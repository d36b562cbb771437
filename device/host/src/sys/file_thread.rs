//! A thread with a descriptor table of its own, for the files that peers announce.
//!
//! Closing any descriptor of a file drops all record locks (`fcntl(2)`) that the process holds on that file,
//! and a file that a peer announces may be one that the program has locked. The kernel keeps such locks by
//! descriptor table. So these files are received, mapped and closed by a thread whose table has nothing else
//! in it: closing them there drops no lock of the program, and they take none of the program's descriptors.
//! The mappings belong to the whole process, as all mappings do.
//!
//! The thread runs one piece of work at a time, while its caller waits. Callers have a device's lock, which
//! no fork interrupts (see [`super::fork`]).

use super::{fork, process};
use link::unix;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes of a message to the thread: address of the work, and of the function that runs it.
const MESSAGE_BYTES: usize = 16;
/// The thread's answer when the work is done.
const DONE: u8 = 1;
/// The lowest descriptor of the thread's table besides standard input, output and error.
const FIRST: i32 = 3;
/// `close_range(2)`: the calling thread gets a table of its own.
const UNSHARE: libc::c_uint = 1 << 1;

static FILE_THREAD: Mutex<Weak<FileThread>> = Mutex::new(Weak::new());

/// The thread; it ends when the last reference is dropped.
#[derive(Debug)]
pub(crate) struct FileThread {
    /// The connection to the thread; locked while work runs.
    control: Mutex<OwnedFd>,
    /// The process of the thread: see [`fork::generation`].
    generation: u64,
}

/// A piece of work and its result.
struct Job<W, T> {
    work: Option<W>,
    result: Option<T>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FileThread {
    /// The thread of this process, which is started if there is none.
    ///
    /// # Errors
    /// No thread or descriptors left, or `close_range(2)` cannot give a thread its own table (before Linux
    /// 5.9, or in a sandbox).
    pub(crate) fn get() -> io::Result<Arc<Self>> {
        let mut known = lock(&FILE_THREAD);
        let generation = fork::generation();
        if let Some(thread) = known
            .upgrade()
            .filter(|thread| thread.generation == generation)
        {
            return Ok(thread);
        }
        let [control, end] = unix::pair()?;
        let number = end.as_raw_fd();
        process::spawn_quiet("rockery-files", move || run(number))?;
        // When it answers, it has a copy of the other end in its own table.
        let answered = answer(control.as_raw_fd());
        drop(end);
        if !answered {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let thread = Arc::new(Self {
            control: Mutex::new(control),
            generation,
        });
        *known = Arc::downgrade(&thread);
        Ok(thread)
    }

    /// Runs work in the thread, which gets a copy of the descriptor `with`; waits for the result. `None` in
    /// another process than the thread's, or without descriptors. Descriptors are numbers of the thread's
    /// table there.
    pub(crate) fn run<T: Send>(
        &self,
        with: Option<RawFd>,
        work: impl FnOnce(Option<OwnedFd>) -> T + Send,
    ) -> Option<T> {
        if self.generation != fork::generation() {
            return None;
        }
        let mut job = Job {
            work: Some(work),
            result: None,
        };
        let runner = runner_of(&job);
        let mut message = [0; MESSAGE_BYTES];
        message[..8].copy_from_slice(&((&raw mut job).expose_provenance() as u64).to_ne_bytes());
        message[8..].copy_from_slice(&(runner as usize as u64).to_ne_bytes());
        let control = lock(&self.control);
        unix::send(control.as_raw_fd(), &message, with).ok()?;
        // The job stays where it is until the thread is done with it, or has ended.
        answer(control.as_raw_fd()).then_some(())?;
        job.result
    }
}

/// A function that runs the job at an address.
type Runner = unsafe fn(*mut (), Option<OwnedFd>);

fn runner_of<W: FnOnce(Option<OwnedFd>) -> T, T>(_: &Job<W, T>) -> Runner {
    /// # Safety
    /// The address is that of such a job, and no other code uses the job meanwhile.
    unsafe fn run<W: FnOnce(Option<OwnedFd>) -> T, T>(job: *mut (), with: Option<OwnedFd>) {
        // SAFETY: by this function's contract, the address is that of such a job, and nobody else uses it
        // meanwhile.
        let job = unsafe { &mut *job.cast::<Job<W, T>>() };
        job.result = job.work.take().map(|work| work(with));
    }
    run::<W, T>
}

/// Waits for an answer. False when the thread has ended.
fn answer(control: RawFd) -> bool {
    let mut byte = [0];
    matches!(unix::receive_next(control, &mut byte), Ok(1)) && byte == [DONE]
}

/// The thread's loop.
fn run(end: RawFd) {
    let Some(end) = own_table(end) else {
        // Ends the wait of the thread that started this one.
        // SAFETY: no pointers; a socket of ours, which the process has open until then.
        unsafe { libc::shutdown(end, libc::SHUT_RDWR) };
        return;
    };
    let mut message = [0; MESSAGE_BYTES];
    loop {
        if unix::send_now(end.as_raw_fd(), &[DONE]).is_err() {
            return;
        }
        let Ok((MESSAGE_BYTES, with)) = unix::receive(end.as_raw_fd(), &mut message) else {
            return;
        };
        let word =
            |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| message[at + byte])) as usize;
        let job = std::ptr::with_exposed_provenance_mut::<()>(word(0));
        // SAFETY: our own process sent both, and waits for the answer.
        unsafe {
            let runner: Runner = std::mem::transmute::<usize, Runner>(word(8));
            runner(job, with);
        }
    }
}

/// Gives the calling thread a descriptor table with nothing in it but this end. The process's others are not
/// closed, only this thread's references to them.
fn own_table(end: RawFd) -> Option<OwnedFd> {
    let close = |first: i32, last: u32, flags: libc::c_uint| {
        // Not by the C library's function, which is younger than the system call.
        // SAFETY: no pointers; descriptors of this thread's own table, after the first call.
        first as u32 > last
            || unsafe { libc::syscall(libc::SYS_close_range, first as u32, last, flags) } == 0
    };
    if !close(end + 1, u32::MAX, UNSHARE) {
        return None;
    }
    // SAFETY: no pointers.
    let kept = unsafe { libc::fcntl(end, libc::F_DUPFD_CLOEXEC, FIRST) };
    if kept < 0 {
        return None;
    }
    close(FIRST, (kept - 1) as u32, 0);
    close(kept + 1, u32::MAX, 0);
    // SAFETY: a name that lives until the call returns; descriptors of this thread's own table.
    unsafe {
        // The other ends of the program's pipes must see the program close them.
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        let stand_in = if null < 0 { kept } else { null };
        (0..FIRST)
            .filter(|standard| *standard != stand_in)
            .for_each(|standard| {
                libc::dup2(stand_in, standard);
            });
        if null >= FIRST {
            libc::close(null);
        }
        Some(OwnedFd::from_raw_fd(kept))
    }
}

/// A file in the thread's table, closed there when this is dropped.
#[derive(Debug)]
pub(crate) struct PeerFile {
    thread: Arc<FileThread>,
    fd: RawFd,
}

impl PeerFile {
    /// `fd` is a descriptor of the thread's table, and no other code uses it.
    pub(crate) fn new(thread: &Arc<FileThread>, fd: RawFd) -> Self {
        Self {
            thread: Arc::clone(thread),
            fd,
        }
    }

    /// Runs work on it.
    pub(crate) fn with<T: Send>(&self, work: impl FnOnce(RawFd) -> T + Send) -> Option<T> {
        let fd = self.fd;
        self.thread.run(None, move |_| work(fd))
    }
}

impl Drop for PeerFile {
    fn drop(&mut self) {
        let fd = self.fd;
        // SAFETY: no pointers; the thread's table has it, and it is not used any more.
        self.thread.run(None, move |_| unsafe { libc::close(fd) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// Record locks of this process on a file, as the kernel lists them.
    fn locks(inode: u64) -> usize {
        let list = std::fs::read_to_string("/proc/locks").unwrap();
        list.lines()
            .filter(|line| line.contains(&format!(":{inode} ")))
            .count()
    }

    #[test]
    fn closing_a_file_of_the_thread_drops_no_lock_of_the_program() {
        let file = std::fs::File::from(unix::anonymous_file().unwrap());
        // SAFETY: all zeros is a lock of the whole file; it lives until the call returns.
        let locked = unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            lock.l_type = libc::F_WRLCK as i16;
            libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock)
        };
        let inode = file.metadata().unwrap().ino();
        assert_eq!((locked, locks(inode)), (0, 1));
        let thread = FileThread::get().unwrap();
        let fd = thread.run(Some(file.as_raw_fd()), |file| {
            std::os::fd::IntoRawFd::into_raw_fd(file.unwrap())
        });
        let kept = PeerFile::new(&thread, fd.unwrap());
        let inodes = kept.with(|fd| {
            std::fs::metadata(format!("/proc/thread-self/fd/{fd}"))
                .unwrap()
                .ino()
        });
        assert_eq!(inodes, Some(inode));
        drop(kept);
        assert_eq!(locks(inode), 1);
        // In the program's own table it would.
        drop(file.try_clone().unwrap());
        assert_eq!(locks(inode), 0);
    }

    #[test]
    fn the_thread_has_nothing_of_the_program_open() {
        let thread = FileThread::get().unwrap();
        let files = std::fs::File::open("/proc/self/exe").unwrap();
        let names = thread.run(None, |_| {
            let entries = std::fs::read_dir("/proc/thread-self/fd").unwrap();
            entries
                .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
                .collect::<Vec<_>>()
        });
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        assert!(!names.unwrap().contains(&exe));
        drop((files, thread));
    }
}
