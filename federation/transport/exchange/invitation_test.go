package exchange

import (
	"errors"
	"testing"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/transporttest"
)

// An answer that the server signed counts for the request that it answers, and for the subject that this came by.
func TestAnswersAreBound(t *testing.T) {
	subject, request := "pf.toy.from.0.hello", []byte(`{"nonce":"a"}`)
	mine := protocol.Question(subject, request)
	answer := transporttest.Pack(t, protocol.HelloMessage, protocol.HelloReply{Version: protocol.Version,
		Question: mine, Refused: "no", Proof: transporttest.Proof(t)}, nil)
	for question, want := range map[string]error{mine: errRefused,
		protocol.Question("pf.toy.from.1.hello", request):            errOther,
		protocol.Question(subject, []byte(`{"nonce":"b"}`)):          errOther,
		protocol.Question("pf.toy.from.0", []byte("hello\n{}")):      errOther,
		protocol.Question("pf.other.from.0.hello", request):          errOther,
		protocol.Question(subject, append([]byte("\n"), request...)): errOther} {
		if _, err := ParseInvitation(answer, question, certs.Identity{}); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}
