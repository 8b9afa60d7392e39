//! The wire between host and node, and the routes over it. It ends with the node's network namespace.

use super::{Error, block::Block, isolation::Isolation, obstacle::Programs};
use crate::{process::Program, site};

/// Takes a block of addresses that nobody has, and connects host and node with it.
///
/// From the host everything of the node can be reached: itself, its pods, and the Services.
pub(super) async fn connect(programs: &Programs, isolation: &Isolation) -> Result<Block, Error> {
    let ip = || Program::new("ip", &programs.ip);
    let block = claim(&ip, isolation.pid()).await?;
    let (host, node, interface) = (block.host(), block.node(), block.interface());
    let machines: String = block
        .machines()
        .map(|machine| format!("address add {machine}/32 dev {interface}\n"))
        .concat();
    let outside = format!(
        "address add {host}/24 dev {interface}\n\
         {machines}\
         link set {interface} up\n\
         route add {} via {node}\n\
         route add {} via {node}\n",
        block.services(),
        block.pods(),
    );
    let inside = format!(
        "link set lo up\n\
         address add {node}/24 dev eth0\n\
         link set eth0 up\n\
         route add default via {host}\n"
    );
    succeed(&ip().args(["-batch", "-"]), &outside).await?;
    let batch = isolation.inside("ip", &programs.ip).args(["-batch", "-"]);
    succeed(&batch, &inside).await?;
    Ok(block)
}

/// The kernel lets only one have an interface of a name, so two sandboxes never get one block.
async fn claim(ip: &impl Fn() -> Program, pid: u32) -> Result<Block, Error> {
    let pid = pid.to_string();
    for block in Block::all() {
        let interface = block.interface();
        let add = ip()
            .args(["link", "add", &interface, "type", "veth"])
            .args(["peer", "name", "eth0", "netns", &pid]);
        let answer = site::run(&add, "").await?;
        if !answer.success {
            if answer.stderr.contains("File exists") {
                continue;
            }
            return Err(failed(&add, &answer));
        }
        // Somebody who is no sandbox may use these addresses. A wider route does no harm: the narrower one wins.
        let routes = ip().args(["-4", "route", "show", "root", &block.whole()]);
        if succeed(&routes, "").await?.trim().is_empty() {
            return Ok(block);
        }
        succeed(&ip().args(["link", "delete", &interface]), "").await?;
    }
    Err(Error::NoAddresses)
}

async fn succeed(program: &Program, stdin: &str) -> Result<String, Error> {
    let answer = site::run(program, stdin).await?;
    if answer.success {
        Ok(answer.stdout)
    } else {
        Err(failed(program, &answer))
    }
}

fn failed(program: &Program, answer: &site::Answer) -> Error {
    Error::Command {
        command: program.line(),
        stderr: answer.stderr.trim().to_owned(),
    }
}
