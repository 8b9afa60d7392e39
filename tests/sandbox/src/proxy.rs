//! A network between two processes that can be cut, or that keeps what is sent for later.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Mutex, watch},
    task::JoinSet,
    time,
};

/// What becomes of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    /// Nothing arrives, and nobody is told.
    Cut,
    /// It arrives when the way is open again, also from those who have hung up by then.
    Held,
}

/// What comes back, of all connections together.
#[derive(Clone, Debug)]
struct Back {
    bytes: Arc<AtomicU64>,
    pace: Option<Pace>,
}

/// How fast something comes back.
#[derive(Clone, Debug)]
struct Pace {
    bytes_a_second: u32,
    /// Whose bytes are on the way.
    turn: Arc<Mutex<()>>,
}

impl Back {
    async fn pass(&self, bytes: usize) {
        self.bytes
            .fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
        let Some(Pace { bytes_a_second, turn }) = &self.pace else {
            return;
        };
        let _turn = turn.lock().await;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        time::sleep(Duration::from_secs(1) * bytes / *bytes_a_second).await;
    }
}

/// Passes connections on, unless it is cut or held.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    way: watch::Sender<Way>,
    returned: Arc<AtomicU64>,
    // It ends with this.
    _serving: JoinSet<()>,
}

impl Proxy {
    /// A way to this address, on a port of its own on loopback.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn to(address: String) -> io::Result<Self> {
        Self::at((Ipv4Addr::LOCALHOST, 0).into(), address).await
    }

    /// A slow way to this address: so many bytes a second come back, of all connections together.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn slow(address: String, bytes_a_second: u32) -> io::Result<Self> {
        let turn = Arc::default();
        let pace = Some(Pace { bytes_a_second, turn });
        Self::paced((Ipv4Addr::LOCALHOST, 0).into(), address, pace).await
    }

    /// A way to this address, from one of the machine's own.
    ///
    /// # Errors
    /// When somebody listens there, or it is none of this machine.
    pub async fn at(own: SocketAddr, address: String) -> io::Result<Self> {
        Self::paced(own, address, None).await
    }

    async fn paced(own: SocketAddr, address: String, pace: Option<Pace>) -> io::Result<Self> {
        let listener = TcpListener::bind(own).await?;
        let own = listener.local_addr()?.to_string();
        let (way, seen) = watch::channel(Way::Open);
        let returned = Arc::<AtomicU64>::default();
        let back = Back {
            bytes: Arc::clone(&returned),
            pace,
        };
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, address, seen, back));
        Ok(Self {
            address: own,
            way,
            returned,
            _serving: serving,
        })
    }

    /// Where it is: `ADDRESS:PORT`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How many bytes have come back so far.
    #[must_use]
    pub fn returned(&self) -> u64 {
        self.returned.load(Ordering::Relaxed)
    }

    /// Cuts the way, so that nothing arrives and nobody is told; or opens it for new connections.
    pub fn cut(&self, cut: bool) {
        self.way.send_replace(if cut { Way::Cut } else { Way::Open });
    }

    /// Holds what is sent, or lets all of it arrive.
    pub fn hold(&self, held: bool) {
        self.way.send_replace(if held { Way::Held } else { Way::Open });
    }
}

async fn serve(listener: TcpListener, address: String, way: watch::Receiver<Way>, back: Back) {
    let mut connections = JoinSet::new();
    loop {
        // A connection that its client has given up already is no reason to end.
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        connections.spawn(connection(client, address.clone(), way.clone(), back.clone()));
    }
}

/// What was connected before a cut never hears anything again; what connects during one hears nothing until it is over.
async fn connection(client: TcpStream, address: String, mut way: watch::Receiver<Way>, back: Back) {
    if way.wait_for(|way| *way == Way::Open).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(address).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let passing = async {
        tokio::join!(
            pass(from_client, to_server, way.clone(), None),
            pass(from_server, to_client, way.clone(), Some(back))
        )
    };
    let mut seen = way.clone();
    let cut_off = async {
        if seen.wait_for(|way| *way == Way::Cut).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::pin!(passing);
    tokio::select! {
        _ = &mut passing => return,
        () = cut_off => {}
    }
    // The sockets stay open, and whatever is sent stays in their buffers.
    std::future::pending::<()>().await;
}

/// One direction, until either side has ended it.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut way: watch::Receiver<Way>,
    back: Option<Back>,
) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read) = from.read(&mut bytes).await {
        if read == 0 || way.wait_for(|way| *way != Way::Held).await.is_err() {
            break;
        }
        if let Some(back) = &back {
            back.pass(read).await;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
    // It is over in this direction, whether or not the other side still hears of it.
    let _ = to.shutdown().await;
}
