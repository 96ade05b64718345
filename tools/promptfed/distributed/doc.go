// Package distributed has the commands of runs on several machines: serve, join, status and certs for a server and its
// clients; work and the flag --cluster for a run and its workers. It may import federation, configs and the packages of
// tools/promptfed that it uses, and nothing of tools/lab.
package distributed
