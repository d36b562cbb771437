//! A transfer by a program of `rockery run`: this program, which the command starts once more.
//!
//! The program may be ended by a filter of system calls or wait for ever, and neither may end the check.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use host::Device;
use rnic::{
    Access, AddressVector, AttrMask, Capacity, Completion, Cq, Data, Gid, Mtu, Operation, QpAttr,
    QpInit, QpType, RegionInit, RegionKeys, SendFlags, SendRequest, Sge, State, Status,
};
use wire::{Psn, Qpn};

use super::{Finding, Level};
use crate::{Error, companion, output};

/// Time within which the program has to end.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time within which a WRITE has to complete.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the program is asked whether it has ended.
const PAUSE: Duration = Duration::from_millis(2);
/// The code of the ACK timeout: 67 ms.
const ACK_TIMEOUT: u8 = 14;
const BYTES: usize = 64;

/// The name of the library that programs load.
const VERBS: &str = "libibverbs.so";

/// Starts the trial, and says how it ended.
pub(super) fn result() -> Finding {
    let subject = "transfer";
    let begin = Instant::now();
    match run() {
        Ok(said) => {
            let milliseconds = begin.elapsed().as_millis();
            Finding::fine(subject, format!("{said}, in {milliseconds} ms"))
        }
        Err(reason) => Finding::new(
            Level::Broken,
            subject,
            reason,
            "ROCKERY_LOG=debug rockery check-trial says what happened before",
        ),
    }
}

/// What the trial printed, or why it failed.
fn run() -> Result<String, String> {
    let own = companion::own_path().map_err(|error| error.to_string())?;
    let mut command = Command::new(&own);
    command.args(["run", "--"]).arg(&own).arg("check-trial");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| error.to_string())?;
    let (ended, said, complained) = wait(child).map_err(|error| error.to_string())?;
    let complaint = complained.lines().last().unwrap_or_default();
    let complaint = complaint.trim_start_matches("rockery: ");
    match ended {
        None => Err(format!(
            "the program did not end within {} s",
            TIMEOUT.as_secs()
        )),
        Some(status) if status.success() => Ok(said.trim().to_owned()),
        Some(status) if complaint.is_empty() => Err(format!("the program ended with {status}")),
        Some(_) => Err(complaint.to_owned()),
    }
}

/// Waits for the end of a program, and ends it when that takes too long; its output and errors.
fn wait(mut child: Child) -> std::io::Result<(Option<std::process::ExitStatus>, String, String)> {
    let begin = Instant::now();
    let ended = loop {
        match child.try_wait()? {
            None if begin.elapsed() < TIMEOUT => std::thread::sleep(PAUSE),
            ended => break ended,
        }
    };
    if ended.is_none() {
        child.kill()?;
        child.wait()?;
    }
    // The agent that the program has started keeps neither.
    let (mut said, mut complained) = (String::new(), String::new());
    child
        .stdout
        .take()
        .map(|mut pipe| pipe.read_to_string(&mut said))
        .transpose()?;
    child
        .stderr
        .take()
        .map(|mut pipe| pipe.read_to_string(&mut complained))
        .transpose()?;
    Ok((ended, said, complained))
}

/// The trial itself: a WRITE between two queue pairs of the first device, and its bytes compared.
///
/// # Errors
/// The step that failed.
pub(crate) fn act() -> Result<(), Error> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    if !maps.contains(VERBS) {
        return Err(Error::Trial(
            "the dynamic linker did not load rockery's libibverbs, though LD_PRELOAD names it"
                .into(),
        ));
    }
    let info = host::list().into_iter().next_back();
    let info = info.ok_or_else(|| Error::Trial("there is no device".into()))?;
    let device = Device::open(&info).map_err(|error| Error::Trial(error.to_string()))?;
    let written = write(&device).map_err(Error::Trial)?;
    output::line(format_args!(
        "a program of rockery run wrote {written} bytes by RDMA on {}",
        info.name
    ))
}

/// What the two queue pairs of the trial share.
struct Objects {
    cq: Cq,
    ends: [Qpn; 2],
    keys: RegionKeys,
}

/// Writes from the first half of a buffer to the second.
fn write(device: &Device) -> Result<usize, String> {
    let mut memory: Vec<u8> = (0..BYTES as u8).collect();
    memory.resize(2 * BYTES, 0);
    let address = memory.as_mut_ptr() as u64;
    host::pin(address, memory.len() as u64, true).map_err(|error| format!("pin: {error:?}"))?;
    let objects = objects(device, address).map_err(|error| format!("queue pairs: {error:?}"))?;
    let [one, other] = objects.ends;
    for (end, peer) in [(one, other), (other, one)] {
        connect(device, end, peer)?;
    }
    let local = Sge {
        address,
        length: BYTES as u32,
        lkey: objects.keys.lkey,
    };
    let request = SendRequest {
        id: 1,
        operation: Operation::Write {
            address: address + BYTES as u64,
            rkey: objects.keys.rkey,
            immediate: None,
        },
        flags: SendFlags::SIGNALED,
        data: Data::Sges(&[local]),
        destination: None,
        xrc_srq: None,
    };
    device
        .post_send(one, &request)
        .map_err(|error| format!("post: {error:?}"))?;
    let completion = completion(device, objects.cq)?;
    if completion.status != Status::Success {
        return Err(format!("the WRITE completed with {:?}", completion.status));
    }
    let (sent, arrived) = std::hint::black_box(&memory).split_at(BYTES);
    match sent == arrived {
        true => Ok(BYTES),
        false => Err(format!(
            "other bytes arrived than were written: {arrived:?}"
        )),
    }
}

fn objects(device: &Device, address: u64) -> Result<Objects, rnic::Error> {
    let capacity = Capacity {
        send_wr: 1,
        receive_wr: 1,
        send_sge: 1,
        receive_sge: 1,
        inline: 0,
    };
    let (pd, cq, keys) = device.with(|rnic, _| {
        let pd = rnic.alloc_pd()?;
        let cq = rnic.cqs_mut().create(4)?;
        let init = RegionInit {
            address,
            length: 2 * BYTES as u64,
            iova: address,
            access: Access::LOCAL_WRITE | Access::REMOTE,
        };
        let keys = rnic.memory().register(pd, init)?;
        Ok((pd, cq, keys))
    })?;
    let init = QpInit {
        kind: QpType::Rc,
        pd: Some(pd),
        xrcd: None,
        send_cq: Some(cq),
        receive_cq: Some(cq),
        srq: None,
        capacity,
        signal_all: true,
    };
    let ends = [device.create_qp(&init)?, device.create_qp(&init)?];
    Ok(Objects { cq, ends, keys })
}

/// Brings a queue pair to RTS.
fn connect(device: &Device, end: Qpn, peer: Qpn) -> Result<(), String> {
    let gids = device.info().gids.iter();
    let address: Option<(usize, &Gid)> = gids.enumerate().next();
    let (index, &destination) = address.ok_or("the device has no GID")?;
    let attr = |state| QpAttr {
        state,
        path_mtu: Mtu::B1024,
        destination: peer,
        access: Access::LOCAL_WRITE | Access::REMOTE,
        vector: AddressVector {
            destination,
            source_index: index as u8,
            ..Default::default()
        },
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 1,
        timeout: ACK_TIMEOUT,
        retry_count: 7,
        rnr_retry: 7,
        receive_psn: Psn::new(1),
        send_psn: Psn::new(1),
        ..QpAttr::default()
    };
    let init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
    let receive = AttrMask::STATE
        | AttrMask::AV
        | AttrMask::PATH_MTU
        | AttrMask::DEST_QPN
        | AttrMask::RQ_PSN
        | AttrMask::MAX_DEST_RD_ATOMIC
        | AttrMask::MIN_RNR_TIMER;
    let send = AttrMask::STATE
        | AttrMask::TIMEOUT
        | AttrMask::RETRY_CNT
        | AttrMask::RNR_RETRY
        | AttrMask::SQ_PSN
        | AttrMask::MAX_QP_RD_ATOMIC;
    let states = [
        (State::Init, init),
        (State::ReadyToReceive, receive),
        (State::ReadyToSend, send),
    ];
    states.into_iter().try_for_each(|(state, mask)| {
        device
            .modify_qp(end, &attr(state), mask)
            .map_err(|error| format!("the queue pair does not reach {state:?}: {error:?}"))
    })
}

fn completion(device: &Device, cq: Cq) -> Result<Completion, String> {
    let begin = Instant::now();
    let mut found = None;
    while begin.elapsed() < WRITE_TIMEOUT {
        device.poll_cq(cq, 1, |completion| found = Some(*completion));
        if let Some(completion) = found {
            return Ok(completion);
        }
    }
    Err(format!(
        "the WRITE did not complete within {} s",
        WRITE_TIMEOUT.as_secs()
    ))
}
