//! Container images of programs of this machine, without a daemon and without a registry.
//!
//! An [`Image`] holds programs, the libraries that the dynamic linker loads for them, and nothing else: no package manager, and a
//! shell only where it is one of the programs. It is written as an OCI layout in a tar archive, which `ctr images import`, `podman load` and
//! `skopeo copy oci-archive:…` read. The same input makes the same digest: times are zero and entries are sorted.
//!
//! | module | holds |
//! |---|---|
//! | [`catalogue`] | the images of this project, one row each |
//! | [`image`] | what an image consists of |
//! | [`layer`] | files as a layer |
//! | [`archive`] | layers as an OCI layout in a tar archive |
//! | [`libraries`] | what a program is linked with |
//! | [`certificates`] | CA certificates |
//! | [`source`] | where the source is |
//! | [`bill`] | the bill of materials of a program |

pub mod archive;
pub mod bill;
pub mod catalogue;
pub mod certificates;
pub mod image;
pub mod layer;
pub mod libraries;
pub mod source;

pub use image::{Error, Image, Program};
