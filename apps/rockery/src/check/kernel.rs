//! What the kernel and the limits of this process allow. What is missing here makes programs slower, or a
//! command of rockery impossible: whether RDMA works at all, the trial says.

use std::fs;
use std::process::{Command, Stdio};

use super::{Finding, Level};
use crate::companion;

/// The oldest kernel on which the libraries are meant to run.
const KERNEL: (u32, u32) = (5, 0);
/// Receive buffer of a socket that a device asks for.
const RECEIVE_BUFFER: u64 = 4 << 20;
/// Descriptors that a few devices and their connections take.
const DESCRIPTORS: u64 = 256;

/// What was found of each.
pub(super) fn findings() -> Vec<Finding> {
    let all = [
        Some(of_kernel()),
        Some(of_namespaces()),
        of_memory_files(),
        of_shared_folder(),
        of_yama(),
        of_seccomp(),
        of_receive_buffer(),
        of_descriptors(),
        Some(of_locked_memory()),
    ];
    all.into_iter().flatten().collect()
}

fn note(subject: &str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding::new(Level::Note, subject, found, remedy)
}

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn of_kernel() -> Finding {
    let release = line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    match version(&release) {
        Some(version) if version < KERNEL => note(
            "kernel",
            format!("Linux {release}, older than what rockery is tested on"),
            "use Linux 5.0 or newer, if programs fail",
        ),
        _ => Finding::fine("kernel", format!("Linux {release}")),
    }
}

/// The first two numbers of a release, as in `6.1.0-28-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Tries `rockery run --private`, which needs a user namespace where this is not root.
/// Without `/proc` nothing else can be looked at.
pub(super) fn of_proc() -> Option<Finding> {
    fs::symlink_metadata("/proc/self/exe").err().map(|_| {
        Finding::new(
            Level::Broken,
            "/proc",
            "not mounted: rockery finds its libraries and the limits of processes there",
            "mount -t proc proc /proc",
        )
    })
}

/// Whether the root directory of a process with these mounts (proc_pid_mountinfo(5)) is no mount point, as
/// after chroot(2).
fn is_chroot(mounts: &str) -> bool {
    !mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == Some("/"))
}

fn of_namespaces() -> Finding {
    let subject = "namespaces";
    let refused = |reason: String| {
        let remedy = match fs::read_to_string("/proc/self/mountinfo") {
            Ok(mounts) if is_chroot(&mounts) => {
                "this is a chroot, in which the kernel makes no user namespaces (unshare(2)): use a \
                 container, or call rockery as root"
            }
            _ => {
                "allow user namespaces (sysctl user.max_user_namespaces, \
                 kernel.apparmor_restrict_unprivileged_userns; the container's seccomp profile)"
            }
        };
        note(
            subject,
            format!(
                "refused, so rockery run --private, --view namespace and rockery lab do not work: {reason}"
            ),
            remedy,
        )
    };
    let own = match companion::own_path() {
        Ok(own) => own,
        Err(error) => return refused(error.to_string()),
    };
    let mut command = Command::new(&own);
    command.args(["run", "--private", "--view", "none", "--"]);
    command.arg(&own).arg("--version").stdin(Stdio::null());
    match command.output() {
        Ok(done) if done.status.success() => {
            Finding::fine(subject, "rockery run --private and rockery lab work")
        }
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr);
            let last = said.lines().last().unwrap_or_default();
            refused(last.trim_start_matches("rockery: ").to_owned())
        }
        Err(error) => refused(error.to_string()),
    }
}

fn of_memory_files() -> Option<Finding> {
    let error = os::memory_file::unsealable(c"rockery-check").err()?;
    Some(note(
        "memory files",
        format!("memfd_create is refused ({error}): programs on this host exchange packets"),
        "allow memfd_create in the container's seccomp profile, for the speed of shared memory",
    ))
}

/// Programs of others, such as MPI and NCCL, share memory there.
fn of_shared_folder() -> Option<Finding> {
    let is_there = fs::metadata("/dev/shm").is_ok_and(|folder| folder.is_dir());
    (!is_there).then(|| {
        note(
            "/dev/shm",
            "not there: rockery does not need it, MPI and NCCL do",
            "mount a tmpfs at /dev/shm (containers: --shm-size)",
        )
    })
}

fn of_yama() -> Option<Finding> {
    let scope = line("/proc/sys/kernel/yama/ptrace_scope")?;
    matches!(&*scope, "2" | "3").then(|| {
        note(
            "access to memory",
            format!("Yama's ptrace_scope is {scope}: programs on one host copy through rings"),
            "sysctl kernel.yama.ptrace_scope=1, for the fastest transfers on one host",
        )
    })
}

fn of_seccomp() -> Option<Finding> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"))?;
    (mode.trim() == "2").then(|| {
        Finding::fine(
            "seccomp",
            "a filter is at work, as in containers; what it refuses to rockery, the other lines say",
        )
    })
}

fn of_receive_buffer() -> Option<Finding> {
    let most: u64 = line("/proc/sys/net/core/rmem_max")?.parse().ok()?;
    (most < RECEIVE_BUFFER).then(|| {
        note(
            "receive buffer",
            format!(
                "net.core.rmem_max is {most}: packets between hosts are lost earlier under load"
            ),
            "sysctl -w net.core.rmem_max=4194304, for measurements between hosts",
        )
    })
}

/// The soft limit of `/proc/self/limits` (proc(5)) in this line; `None` where there is none.
fn limit(name: &str) -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let values = limits.lines().find_map(|line| line.strip_prefix(name))?;
    values.split_whitespace().next()?.parse().ok()
}

fn of_descriptors() -> Option<Finding> {
    let most = limit("Max open files").filter(|&most| most < DESCRIPTORS)?;
    Some(note(
        "descriptors",
        format!("at most {most} in each process (RLIMIT_NOFILE); a device takes 16"),
        "ulimit -n 1024",
    ))
}

/// Adapters count registered memory against this limit, rockery does not.
fn of_locked_memory() -> Finding {
    let found = match limit("Max locked memory") {
        Some(bytes) => format!(
            "at most {} KiB (RLIMIT_MEMLOCK), which rockery does not count; with an adapter, ibv_reg_mr of \
             more fails",
            bytes >> 10
        ),
        None => "no limit (RLIMIT_MEMLOCK)".to_owned(),
    };
    Finding::fine("locked memory", found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.1.0-28-amd64"), Some((6, 1)));
        assert_eq!(version("4.19-rc1"), Some((4, 19)));
        assert_eq!(version("odd"), None);
        assert!(version("4.18.0").unwrap() < KERNEL && version("10.0").unwrap() > KERNEL);
    }

    #[test]
    fn a_root_directory_that_is_no_mount_point_is_a_chroot() {
        let inside = "71 45 0:39 / /proc rw,relatime - proc proc rw\n";
        let outside = format!("45 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n{inside}");
        assert!(is_chroot(inside) && !is_chroot(&outside));
    }

    #[test]
    fn limits_of_this_process_are_read() {
        assert!(limit("Max open files").is_some());
        assert_eq!(limit("Max nonsense"), None);
    }
}
