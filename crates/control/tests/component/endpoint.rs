//! The state endpoint of a run, as small as the scripted engine needs it.
//!
//! Not here: the real one (`server::state`), with its limits and its sign-in.

use std::io;

use control::runner::Endpoint;
use control::state::run_access::{StateAccess, StateAccessError};
use model::base::secret::Secret;
use model::state::lock::LockInfo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) fn serve(
    access: StateAccess,
    listener: TcpListener,
    _token: Secret,
) -> io::Result<Endpoint> {
    let address = format!("http://{}/state", listener.local_addr()?);
    let serving = async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A broken connection is the engine's to report.
            drop(answer(stream, &access).await);
        }
    };
    Ok(Endpoint {
        environment: vec![
            ("TF_HTTP_ADDRESS", Secret::new(address)),
            ("TF_HTTP_USERNAME", Secret::new("run")),
            ("TF_HTTP_PASSWORD", Secret::new("secret")),
        ],
        serving: Box::pin(serving),
    })
}

async fn answer(mut stream: TcpStream, access: &StateAccess) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let (method, rest) = head.split_once(' ').unwrap_or_default();
    let path = rest.split(' ').next().unwrap_or_default();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await?;
    let (status, body) = match respond(method, path, body, access).await {
        Ok(body) => (200, body),
        Err(
            StateAccessError::Locked { holder, .. } | StateAccessError::NotYours { holder, .. },
        ) => (423, holder.info.to_json().into_bytes()),
        Err(_) => (409, Vec::new()),
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await
}

async fn respond(
    method: &str,
    path: &str,
    body: Vec<u8>,
    access: &StateAccess,
) -> Result<Vec<u8>, StateAccessError> {
    let lock = |body: &[u8]| -> LockInfo { serde_json::from_slice(body).unwrap() };
    match method {
        "LOCK" => access.lock(&lock(&body)).await?,
        "UNLOCK" => access.unlock(&lock(&body).id).await?,
        "POST" => {
            let id = path.split_once("?ID=").map(|(_, id)| id.to_owned());
            access.write(id, body).await?;
        }
        _ => {
            return Ok(access
                .read()
                .await?
                .map_or_else(Vec::new, |(_, body)| body.to_vec()));
        }
    }
    Ok(Vec::new())
}
