"""Moto's S3 on one port of 127.0.0.1: `python s3_app.py PORT`."""

import sys
import threading

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple

application = DomainDispatcherApplication(create_backend_app)
one_at_a_time = threading.Lock()


class Handler(MotoRequestHandler):
    def log_request(self, *_):
        """Say nothing."""

    def handle_expect_100(self):
        # Werkzeug sends "100 Continue" too, and Amazon's client takes a second one for the answer.
        return True


def serve(environ, start_response):
    # Moto looks whether an object is there and then writes it: another must not come between.
    with one_at_a_time:
        return application(environ, start_response)


run_simple("127.0.0.1", int(sys.argv[1]), serve, threaded=True, request_handler=Handler)
