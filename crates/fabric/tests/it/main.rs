//! One switch between senders that obey its pauses and a receiver.

mod any;
mod driver;
mod lossless;
mod queues;
