//! Where events of completion queues go: to the queue's completion channel, or to a thread that waits for the
//! queue in place of the progress thread.

use super::wake_up::WakeUp;
use crate::channel::CompletionChannel;
use rnic::Cq;
use std::collections::HashMap;
use std::sync::Arc;

/// The destinations of completion events.
#[derive(Default, Debug)]
pub(crate) struct CompletionRoutes {
    channels: HashMap<Cq, (Arc<CompletionChannel>, u64)>,
    /// The completion queue that a program waits for in place of the progress thread. Its completions are
    /// reported through the wake-up socket, and not through the queue's completion channel.
    pub(super) awaited: Option<Cq>,
}

impl CompletionRoutes {
    /// Sends a queue's events to a channel, as `cookie`.
    pub(crate) fn attach_cq(&mut self, cq: Cq, channel: Arc<CompletionChannel>, cookie: u64) {
        self.channels.insert(cq, (channel, cookie));
    }

    /// Detaches a queue from its channel, and drops its events there.
    pub(crate) fn detach_cq(&mut self, cq: Cq) {
        if let Some((channel, cookie)) = self.channels.remove(&cq) {
            channel.forget(cookie);
        }
    }

    /// The completion channel of a queue, and the queue's cookie there.
    pub(super) fn channel_of(&self, cq: Cq) -> Option<(Arc<CompletionChannel>, u64)> {
        self.channels.get(&cq).cloned()
    }

    /// Delivers the event of a queue. A thread that waits in place of the progress thread is woken by
    /// `wake_up`.
    pub(super) fn deliver_event(&self, cq: Cq, wake_up: Option<&Arc<WakeUp>>) {
        if self.awaited == Some(cq) {
            wake_up.iter().for_each(|wake_up| wake_up.signal());
        } else if let Some((channel, cookie)) = self.channels.get(&cq) {
            channel.push(*cookie);
            if let Some(wake_up) = wake_up.filter(|_| channel.is_waiting()) {
                wake_up.signal();
            }
        }
    }
}
