//! What a site needs for jump hosts: their images on a real node, and a port at which the agent serves power control.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use images::{
    Image,
    bill::Contents,
    catalogue::{JUMP_HOST, JUMP_HOST_TOOLS, Row},
};

use crate::{
    authority::{Caller, Identity, Validity},
    node, port, programs,
    region::{self, Agent, JUMP_HOST_TOOLS_IMAGE, Region},
    site::{self, Site},
    tools,
};

/// Port of power control where the address is nobody else's, as in pods of the agent.
const POWER_PORT: u16 = 8_443;

/// The image with sshd that `make images` makes, under a name by which a `SIPCluster` asks for it.
///
/// # Errors
/// When one of the project's programs was not built.
pub fn image(name: &str) -> Result<Image, region::Error> {
    with_libraries(packed(&JUMP_HOST, name)?)
}

/// An image of another distribution, in which programs of ours run that were not linked statically: with their libraries.
///
/// # Errors
/// When one of the project's programs was not built.
pub fn with_libraries(image: Image) -> Result<Image, region::Error> {
    JUMP_HOST_TOOLS.programs.iter().try_fold(image, |image, program| {
        Ok(image.libraries_of(programs::path(program)?))
    })
}

/// An image with the programs of this machine, and what they consist of.
fn made(row: &Row, name: &str) -> Result<(Image, Contents), region::Error> {
    let find = |program: &str| -> Result<PathBuf, region::Error> {
        if row.go_programs.contains(&program) {
            Ok(tools::path(program)?)
        } else {
            Ok(programs::path(program)?)
        }
    };
    row.image(name, find)
}

fn packed(row: &Row, name: &str) -> Result<Image, region::Error> {
    let (image, _) = made(row, name)?;
    // As they are built for tests, they are many times larger than a pod may copy.
    Ok(image.stripped("strip"))
}

/// Where an agent serves power control, and how it is verified there.
#[derive(Clone, Debug)]
pub struct PowerPort {
    address: SocketAddr,
    /// CA certificate that its certificate chains to (PEM).
    pub authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl PowerPort {
    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Variables of a jump-host agent that serves there, and trusts BMCs of a CA besides those of the machine.
    #[must_use]
    pub fn variables(&self, bmc_authority: Option<&Path>) -> Vec<(&'static str, String)> {
        let path = |path: &Path| path.display().to_string();
        let mut variables = vec![
            ("SIP_POWER_LISTEN", self.address.to_string()),
            ("SIP_POWER_ADDRESS", self.address.to_string()),
            ("SIP_POWER_TLS_CERT", path(&self.certificate)),
            ("SIP_POWER_TLS_KEY", path(&self.key)),
            ("SIP_POWER_CA", path(&self.authority)),
        ];
        variables.extend(bmc_authority.map(|authority| ("SIP_BMC_CA", path(authority))));
        variables
    }
}

impl Region {
    /// Gives the node of a site, if it is a real one, the image with the programs of jump hosts.
    ///
    /// # Errors
    /// When it cannot be made, or the node refuses it.
    pub async fn import_jump_host_tools(&self, site: &Site) -> Result<(), region::Error> {
        if let Some(node) = site.node() {
            let image = packed(&JUMP_HOST_TOOLS, JUMP_HOST_TOOLS_IMAGE)?;
            node.import(&image).await.map_err(site::Error::from)?;
        }
        Ok(())
    }

    /// A port for the power control of a site's jump-host agent: one that pods of a real node reach, or one on loopback.
    ///
    /// # Errors
    /// When there is no port, or its certificate cannot be written.
    pub fn power_port(&self, site: &Site) -> Result<PowerPort, region::Error> {
        let (address, port) = match site.node().map(node::Node::host_address) {
            Some(address) => (address, POWER_PORT),
            None => (Ipv4Addr::LOCALHOST, port::reserve().map_err(region::Error::Port)?),
        };
        let identity = self.power_certificate(site, address.into(), Validity::DAY)?;
        Ok(PowerPort {
            address: (address, port).into(),
            authority: identity.authority,
            certificate: identity.certificate,
            key: identity.key,
        })
    }

    /// Issues the certificate of that port again, in the same files.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn renew_power_port(
        &self,
        site: &Site,
        power: &PowerPort,
        validity: Validity,
    ) -> Result<(), region::Error> {
        self.power_certificate(site, power.address.ip(), validity)
            .map(drop)
    }

    fn power_certificate(
        &self,
        site: &Site,
        address: IpAddr,
        validity: Validity,
    ) -> Result<Identity, region::Error> {
        let agent = Caller::Agent {
            site: site.name(),
            name: Agent::JumpHost.name(),
        };
        Ok(self
            .authority()
            .issue_server_valid(&agent, address, &[], validity)?)
    }
}

#[cfg(test)]
mod tests {
    use images::bill::bill;

    use super::*;
    use crate::repository;

    #[test]
    fn the_bill_of_the_tools_names_crates_and_go_modules() {
        let (_, contents) = made(&JUMP_HOST_TOOLS, JUMP_HOST_TOOLS_IMAGE).unwrap();
        let workspace = repository::deploy().join("..");
        let text = bill(JUMP_HOST_TOOLS.name, "0.1.0", &workspace, &contents).unwrap();
        for part in [
            "pkg:cargo/sip-jump-host-sidecar@",
            "pkg:cargo/sip-host@",
            "pkg:cargo/tonic@",
            "pkg:golang/k8s.io/kubectl@",
            "pkg:golang/std@",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for part in [
            "pkg:cargo/sip-scheduler@",
            "pkg:deb/debian/openssh-server@",
            "pkg:deb/debian/bash@",
        ] {
            assert!(!text.contains(part), "{part}");
        }
    }
}
