//! The call to the kubelet.

use std::path::Path;
use std::time::Duration;

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Request, Response};
use tonic_prost::ProstCodec;

use crate::message::{DevicePluginOptions, Empty, REGISTER, RegisterRequest, VERSION};
use crate::plugin::Plugin;

/// Time limit of the call.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Registers the plugin.
///
/// # Errors
/// The reason, in one line.
pub(crate) async fn register(plugin: &Plugin, kubelet: &Path) -> Result<(), String> {
    let call = tokio::time::timeout(TIMEOUT, call(plugin, kubelet));
    let done = call
        .await
        .map_err(|_| format!("the kubelet did not answer within {} s", TIMEOUT.as_secs()))
        .and_then(|done| done);
    done.map_err(|reason| format!("{}: {reason}", kubelet.display()))
}

async fn call(plugin: &Plugin, kubelet: &Path) -> Result<(), String> {
    // The library's error for a missing socket is only "transport error".
    kubelet.metadata().map_err(|error| error.to_string())?;
    let path = kubelet.to_str().ok_or("the path is not UTF-8")?;
    let endpoint =
        Endpoint::from_shared(format!("unix://{path}")).map_err(|error| error.to_string())?;
    let channel = endpoint
        .connect()
        .await
        .map_err(|error| error.to_string())?;
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|error| error.to_string())?;
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: plugin.endpoint(),
        resource_name: plugin.resource.clone(),
        options: Some(DevicePluginOptions::default()),
    };
    let path = PathAndQuery::from_static(REGISTER);
    let answer: Result<Response<Empty>, _> = grpc
        .unary(Request::new(request), path, ProstCodec::default())
        .await;
    answer
        .map(|_| ())
        .map_err(|status| status.message().to_owned())
}
