//! A network between a scheduler and etcd that can be cut.

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// Passes connections on, unless it is cut: then nothing arrives, and nobody is told.
pub(crate) struct Proxy {
    pub(crate) endpoint: String,
    cut: watch::Sender<bool>,
    // It ends with this.
    _serving: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn to(address: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (cut, seen) = watch::channel(false);
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, address, seen));
        Self {
            endpoint,
            cut,
            _serving: serving,
        }
    }

    pub(crate) fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }
}

async fn serve(listener: TcpListener, address: String, cut: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let (address, cut) = (address.clone(), cut.clone());
        connections.spawn(connection(client, address, cut));
    }
}

/// What was connected before a cut never hears anything again; what connects during one hears nothing until it is over.
async fn connection(mut client: TcpStream, address: String, mut cut: watch::Receiver<bool>) {
    if cut.wait_for(|cut| !cut).await.is_err() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(address).await else {
        return;
    };
    let passing = async {
        // It has ended, whoever ended it.
        let _ = copy_bidirectional(&mut client, &mut server).await;
    };
    let cut_off = async {
        if cut.wait_for(|cut| *cut).await.is_ok() {
            return;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = passing => return,
        () = cut_off => {}
    }
    // The sockets stay open, and whatever is sent stays in their buffers.
    std::future::pending::<()>().await;
}
