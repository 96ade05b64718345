// Package hostguard serves HTTP for the program. It protects servers against web pages of other origins: pages whose
// host name resolves to this machine (DNS rebinding), and pages that let a browser on this machine send requests. It
// limits connections and the time of requests. It imports federation/net/listen only.
package hostguard
