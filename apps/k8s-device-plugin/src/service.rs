//! The service that the kubelet calls.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::message::{
    ALLOCATE, AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateRequest,
    ContainerAllocateResponse, Device, DevicePluginOptions, Empty, HEALTHY, LIST,
    ListAndWatchResponse, MountMessage, OPTIONS, UNHEALTHY,
};
use crate::plugin::{Allocation, Plugin};

/// The plugin as a gRPC service.
#[derive(Clone)]
pub(crate) struct PluginService {
    plugin: Arc<Plugin>,
    health: watch::Receiver<bool>,
}

impl PluginService {
    /// Serves until the sender of `health` is dropped.
    pub(crate) const fn new(plugin: Arc<Plugin>, health: watch::Receiver<bool>) -> Self {
        Self { plugin, health }
    }

    async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        match request.uri().path() {
            OPTIONS => {
                Grpc::new(ProstCodec::default())
                    .unary(Options, request)
                    .await
            }
            LIST => {
                Grpc::new(ProstCodec::default())
                    .server_streaming(List(self), request)
                    .await
            }
            ALLOCATE => {
                Grpc::new(ProstCodec::default())
                    .unary(Allocate(self.plugin), request)
                    .await
            }
            _ => Status::unimplemented("no such call").into_http(),
        }
    }
}

impl Service<http::Request<Body>> for PluginService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let own = self.clone();
        Box::pin(async move { Ok(own.answer(request).await) })
    }
}

/// Answers that the plugin needs no optional calls.
struct Options;

impl UnaryService<Empty> for Options {
    type Response = DevicePluginOptions;
    type Future = Ready<Result<Response<DevicePluginOptions>, Status>>;

    fn call(&mut self, _: Request<Empty>) -> Self::Future {
        ready(Ok(Response::new(DevicePluginOptions::default())))
    }
}

/// Sends all devices, and again after each change of their health.
struct List(PluginService);

impl ServerStreamingService<Empty> for List {
    type Response = ListAndWatchResponse;
    type ResponseStream = ReceiverStream<Result<ListAndWatchResponse, Status>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, _: Request<Empty>) -> Self::Future {
        let PluginService { plugin, mut health } = self.0.clone();
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let is_healthy = *health.borrow_and_update();
                if sender.send(Ok(devices(&plugin, is_healthy))).await.is_err() {
                    return;
                }
                // The end of the plugin, or of the kubelet, ends the list.
                tokio::select! {
                    changed = health.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                }
            }
        });
        ready(Ok(Response::new(ReceiverStream::new(receiver))))
    }
}

fn devices(plugin: &Plugin, is_healthy: bool) -> ListAndWatchResponse {
    let health = if is_healthy { HEALTHY } else { UNHEALTHY };
    let devices = plugin.ids().map(|id| Device {
        id,
        health: health.to_owned(),
    });
    ListAndWatchResponse {
        devices: devices.collect(),
    }
}

/// Answers with the allocations of containers.
struct Allocate(Arc<Plugin>);

impl UnaryService<AllocateRequest> for Allocate {
    type Response = AllocateResponse;
    type Future = Ready<Result<Response<AllocateResponse>, Status>>;

    fn call(&mut self, request: Request<AllocateRequest>) -> Self::Future {
        let requests = request.into_inner().container_requests;
        let all: Result<Vec<_>, Status> =
            requests.iter().map(|one| container(&self.0, one)).collect();
        ready(all.map(|container_responses| {
            Response::new(AllocateResponse {
                container_responses,
            })
        }))
    }
}

/// The allocation of a container. All devices are alike, so several of them give the same allocation as one.
fn container(
    plugin: &Plugin,
    asked: &ContainerAllocateRequest,
) -> Result<ContainerAllocateResponse, Status> {
    let is_unknown = |asked: &&String| !plugin.ids().any(|id| id == **asked);
    if let Some(id) = asked.devices_ids.iter().find(is_unknown) {
        return Err(Status::invalid_argument(format!(
            "{} has no device {id:?}",
            plugin.resource
        )));
    }
    if asked.devices_ids.is_empty() {
        return Err(Status::invalid_argument("no device is asked for"));
    }
    Ok(match &plugin.allocation {
        Allocation::Cdi(name) => ContainerAllocateResponse {
            cdi_devices: vec![CdiDevice { name: name.clone() }],
            ..ContainerAllocateResponse::default()
        },
        Allocation::Edits {
            mounts,
            environment,
        } => ContainerAllocateResponse {
            envs: environment.iter().cloned().collect(),
            mounts: mounts.iter().map(mount).collect(),
            ..ContainerAllocateResponse::default()
        },
    })
}

fn mount(mount: &crate::Mount) -> MountMessage {
    let crate::Mount { host, container } = mount;
    MountMessage {
        container_path: container.clone(),
        host_path: host.clone(),
        read_only: true,
    }
}
