package certs

import "strconv"

// ServerName is the common name in the server's certificate.
const ServerName = "server"

// UserOf is the user, and the common name in the certificate, of a client.
func UserOf(client int) string { return "client-" + strconv.Itoa(client) }

// StatusUser is the common name of a certificate that may only ask how the run goes.
const StatusUser = "status"

// WorkerUser is the user, and the common name in the certificate, of workers.
const WorkerUser = "worker"
