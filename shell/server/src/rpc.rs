//! Every RPC of etcd: its path, its shape, its place in the counters.
//!
//! The hot ones stand first, because a path is looked up from the top.
//! Knows nothing of: the work of an RPC.

/// The shape of a call, as metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One message in, one out.
    Unary,
    /// One message in, many out.
    ServerStream,
    /// Many in, many out.
    BidiStream,
}

impl Shape {
    /// The metric label `grpc_type`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Shape::Unary => "unary",
            Shape::ServerStream => "server_stream",
            Shape::BidiStream => "bidi_stream",
        }
    }
}

macro_rules! rpcs {
    ($($name:ident $shape:ident $service:literal $method:literal)*) => {
        /// One RPC.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Rpc {
            $($name),*
        }

        impl Rpc {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Rpc] = &[$(Rpc::$name),*];

            /// The RPC at a path, `/package.Service/Method`.
            #[must_use]
            pub(crate) fn from_path(path: &str) -> Option<Rpc> {
                $(if path == concat!("/", $service, "/", $method) { return Some(Rpc::$name); })*
                None
            }

            /// Its service, with the package.
            #[must_use]
            pub fn service(self) -> &'static str {
                match self { $(Rpc::$name => $service),* }
            }

            /// Its method.
            #[must_use]
            pub fn method(self) -> &'static str {
                match self { $(Rpc::$name => $method),* }
            }

            /// Its shape.
            #[must_use]
            pub fn shape(self) -> Shape {
                match self { $(Rpc::$name => Shape::$shape),* }
            }
        }
    };
}

rpcs! {
    Put                  Unary        "etcdserverpb.KV" "Put"
    Range                Unary        "etcdserverpb.KV" "Range"
    Txn                  Unary        "etcdserverpb.KV" "Txn"
    DeleteRange          Unary        "etcdserverpb.KV" "DeleteRange"
    Compact              Unary        "etcdserverpb.KV" "Compact"
    RangeStream          ServerStream "etcdserverpb.KV" "RangeStream"
    Watch                BidiStream   "etcdserverpb.Watch" "Watch"
    LeaseGrant           Unary        "etcdserverpb.Lease" "LeaseGrant"
    LeaseRevoke          Unary        "etcdserverpb.Lease" "LeaseRevoke"
    LeaseKeepAlive       BidiStream   "etcdserverpb.Lease" "LeaseKeepAlive"
    LeaseTimeToLive      Unary        "etcdserverpb.Lease" "LeaseTimeToLive"
    LeaseLeases          Unary        "etcdserverpb.Lease" "LeaseLeases"
    Status               Unary        "etcdserverpb.Maintenance" "Status"
    Alarm                Unary        "etcdserverpb.Maintenance" "Alarm"
    Defragment           Unary        "etcdserverpb.Maintenance" "Defragment"
    Hash                 Unary        "etcdserverpb.Maintenance" "Hash"
    HashKv               Unary        "etcdserverpb.Maintenance" "HashKV"
    Snapshot             ServerStream "etcdserverpb.Maintenance" "Snapshot"
    MoveLeader           Unary        "etcdserverpb.Maintenance" "MoveLeader"
    Downgrade            Unary        "etcdserverpb.Maintenance" "Downgrade"
    MemberAdd            Unary        "etcdserverpb.Cluster" "MemberAdd"
    MemberRemove         Unary        "etcdserverpb.Cluster" "MemberRemove"
    MemberUpdate         Unary        "etcdserverpb.Cluster" "MemberUpdate"
    MemberList           Unary        "etcdserverpb.Cluster" "MemberList"
    MemberPromote        Unary        "etcdserverpb.Cluster" "MemberPromote"
    AuthEnable           Unary        "etcdserverpb.Auth" "AuthEnable"
    AuthDisable          Unary        "etcdserverpb.Auth" "AuthDisable"
    AuthStatus           Unary        "etcdserverpb.Auth" "AuthStatus"
    Authenticate         Unary        "etcdserverpb.Auth" "Authenticate"
    UserAdd              Unary        "etcdserverpb.Auth" "UserAdd"
    UserGet              Unary        "etcdserverpb.Auth" "UserGet"
    UserList             Unary        "etcdserverpb.Auth" "UserList"
    UserDelete           Unary        "etcdserverpb.Auth" "UserDelete"
    UserChangePassword   Unary        "etcdserverpb.Auth" "UserChangePassword"
    UserGrantRole        Unary        "etcdserverpb.Auth" "UserGrantRole"
    UserRevokeRole       Unary        "etcdserverpb.Auth" "UserRevokeRole"
    RoleAdd              Unary        "etcdserverpb.Auth" "RoleAdd"
    RoleGet              Unary        "etcdserverpb.Auth" "RoleGet"
    RoleList             Unary        "etcdserverpb.Auth" "RoleList"
    RoleDelete           Unary        "etcdserverpb.Auth" "RoleDelete"
    RoleGrantPermission  Unary        "etcdserverpb.Auth" "RoleGrantPermission"
    RoleRevokePermission Unary        "etcdserverpb.Auth" "RoleRevokePermission"
    Lock                 Unary        "v3lockpb.Lock" "Lock"
    Unlock               Unary        "v3lockpb.Lock" "Unlock"
    Campaign             Unary        "v3electionpb.Election" "Campaign"
    Proclaim             Unary        "v3electionpb.Election" "Proclaim"
    Leader               Unary        "v3electionpb.Election" "Leader"
    Observe              ServerStream "v3electionpb.Election" "Observe"
    Resign               Unary        "v3electionpb.Election" "Resign"
    HealthCheck          Unary        "grpc.health.v1.Health" "Check"
    HealthList           Unary        "grpc.health.v1.Health" "List"
    HealthWatch          ServerStream "grpc.health.v1.Health" "Watch"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rpc_is_found_by_its_path_and_counted_in_its_own_place() {
        for (place, &rpc) in Rpc::ALL.iter().enumerate() {
            assert_eq!(rpc as usize, place);
            let path = format!("/{}/{}", rpc.service(), rpc.method());
            assert_eq!(Rpc::from_path(&path), Some(rpc), "{path}");
        }
        for path in ["", "/", "/etcdserverpb.KV/", "/etcdserverpb.KV/Pu", "etcdserverpb.KV/Put", "/health"] {
            assert_eq!(Rpc::from_path(path), None, "{path}");
        }
    }
}
