//! An open device, shared by all threads of a program.

use crate::channel::{AsyncEvents, CompletionChannel};
use crate::clock;
use crate::error::OpenError;
use crate::interface::{DeviceInfo, list};
use crate::pump::Pump;
use rnic::{Arm, Completion, Cq, Error, Instant, ReceiveRequest, SendRequest, Srq};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::Qpn;

/// An open device. All calls may come from any thread; one lock orders them.
#[derive(Debug)]
pub struct Device {
    info: DeviceInfo,
    events: AsyncEvents,
    pump: Mutex<Pump>,
}

impl Device {
    /// Opens a device that [`list`] found: gets a socket on port 4791 and a range of queue pair numbers, and
    /// starts the thread that makes progress while the program is away. Everything ends when the last
    /// reference goes.
    ///
    /// # Errors
    /// [`OpenError`] says what is in the way and what to do.
    pub fn open(info: &DeviceInfo) -> Result<Arc<Self>, OpenError> {
        let gone = || OpenError::Gone(info.interface.clone());
        let info = list().into_iter().find(|device| device.name == info.name).ok_or_else(gone)?;
        let mut rnic = rnic::Device::new(rnic::Config::default(), seed().map_err(OpenError::Thread)?);
        for (index, gid) in info.gids.iter().enumerate() {
            rnic.set_gid(index as u8, Some(*gid));
        }
        rnic.set_active_mtu(info.active_mtu);
        rnic.add_qpn_range(Qpn::new(1 << 14), 1 << 14);
        let events = AsyncEvents::new().map_err(OpenError::Thread)?;
        Ok(Arc::new(Self { info, events, pump: Mutex::new(Pump::new(rnic)) }))
    }

    /// What it was opened as.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Runs control verbs on the device: anything that is not on the data path. What they make the device
    /// send and report goes out before this returns.
    pub fn with<T>(&self, verbs: impl FnOnce(&mut rnic::Device, Instant) -> T) -> T {
        let now = clock::now();
        let mut pump = self.lock();
        let result = verbs(&mut pump.rnic, now);
        pump.progress(now);
        pump.pump_events(&self.events);
        result
    }

    /// Posts any number of work requests under one lock, and sends what is worth sending now.
    pub fn post<T>(&self, requests: impl FnOnce(&mut Poster<'_>) -> T) -> T {
        let now = clock::now();
        let mut pump = self.lock();
        let result = requests(&mut Poster { pump: &mut pump, now });
        pump.progress(now);
        pump.pump_events(&self.events);
        result
    }

    /// Posts one send work request.
    ///
    /// # Errors
    /// As [`rnic::Device::post_send`].
    pub fn post_send(&self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), Error> {
        self.post(|poster| poster.send(qpn, request))
    }

    /// Posts one receive work request.
    ///
    /// # Errors
    /// As [`rnic::Device::post_receive`].
    pub fn post_receive(&self, qpn: Qpn, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        self.post(|poster| poster.receive(qpn, request))
    }

    /// Posts one work request to a shared receive queue.
    ///
    /// # Errors
    /// As [`rnic::Device::post_srq_receive`].
    pub fn post_srq_receive(&self, srq: Srq, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        self.post(|poster| poster.srq_receive(srq, request))
    }

    /// Hands up to `most` completions to `take`, oldest first; returns how many. When none waits, looks at
    /// the network first.
    pub fn poll_cq(&self, cq: Cq, most: usize, mut take: impl FnMut(&Completion)) -> usize {
        let mut pump = self.lock();
        let taken = pump.rnic.poll_cq(cq, most, &mut take);
        if taken > 0 || most == 0 {
            return taken;
        }
        pump.progress(clock::now());
        pump.pump_events(&self.events);
        pump.rnic.poll_cq(cq, most, take)
    }

    /// Asks for one event on the channel that the queue is attached to.
    ///
    /// # Errors
    /// As [`rnic::Device::arm_cq`].
    pub fn arm_cq(&self, cq: Cq, arm: Arm) -> Result<(), Error> {
        let mut pump = self.lock();
        pump.rnic.arm_cq(cq, arm)?;
        pump.progress(clock::now());
        pump.pump_events(&self.events);
        Ok(())
    }

    /// Sends the queue's completion events to a channel, as `cookie`. A queue is attached to one channel.
    pub fn attach_cq(&self, cq: Cq, channel: &Arc<CompletionChannel>, cookie: u64) {
        self.lock().attach(cq, Arc::clone(channel), cookie);
    }

    /// Before a completion queue is destroyed: its events that nobody took are gone. `cookie` has to be this
    /// queue's alone.
    pub fn detach_cq(&self, cq: Cq) {
        self.lock().detach(cq);
    }

    /// Asynchronous events.
    pub fn async_events(&self) -> &AsyncEvents {
        &self.events
    }

    /// The device's clock, in nanoseconds: what completions are stamped with.
    pub fn now(&self) -> Instant {
        clock::now()
    }

    fn lock(&self) -> MutexGuard<'_, Pump> {
        self.pump.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Posts work requests: see [`Device::post`].
#[derive(Debug)]
pub struct Poster<'a> {
    pump: &'a mut Pump,
    now: Instant,
}

impl Poster<'_> {
    /// As [`rnic::Device::post_send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), Error> {
        self.pump.rnic.post_send(qpn, request, self.now)
    }

    /// As [`rnic::Device::post_receive`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(&mut self, qpn: Qpn, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        self.pump.rnic.post_receive(qpn, request, self.now)
    }

    /// As [`rnic::Device::post_srq_receive`].
    ///
    /// # Errors
    /// As there.
    pub fn srq_receive(&mut self, srq: Srq, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        self.pump.rnic.post_srq_receive(srq, request)
    }
}

/// From the system's random device: keys and numbers must be hard to guess.
fn seed() -> std::io::Result<[u8; 32]> {
    use std::io::Read;
    let mut seed = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
    Ok(seed)
}
