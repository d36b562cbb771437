//! One switch between senders that obey its pauses and a receiver; and its ports by themselves.

mod any;
mod counters;
mod driver;
mod lanes;
mod lossless;
mod pausing;
mod queues;
mod selection;
mod trimming;
