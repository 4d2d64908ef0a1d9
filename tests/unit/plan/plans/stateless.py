def program(app):
    app.dataframe(app.topic("in")).apply(len).to_topic(app.topic("out"), key=str)
