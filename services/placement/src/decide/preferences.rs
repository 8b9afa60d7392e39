//! The order of preferences among placements that all fit.

/// What is better avoided in a placement, the most important first: the order of the fields is the policy, and everything that
/// compares hosts or placements derives from it. The smallest is the best.
///
/// Of one host the amounts are 0 or 1, or how many roles it matches, and it has no spread ([`super::score::Drawbacks`]). Of
/// a whole placement they are sums ([`super::solution::Quality`]). As units of a price ([`super::price::Prices`]) each outweighs
/// all that come after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Preferences<Amount, Spread> {
    /// Hosts that are not in the namespaces of the cluster's members.
    pub(crate) outside: Amount,
    /// How unevenly members are spread over the domains of the hierarchy, level by level, the outermost first.
    pub(crate) spread: Spread,
    /// Other roles of the request that the hosts match, so that they are left to those.
    pub(crate) wanted_by_others: Amount,
    /// Hosts whose hardware is not known.
    pub(crate) uninspected: Amount,
    /// Hosts that are off, or whose BMC reports a fault.
    pub(crate) impaired: Amount,
}
