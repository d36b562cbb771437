# What the script's trust-l3=keep needs to do something: DSCP 26 is data, DSCP 48 is congestion notifications,
# and everything else stays in the profile "default".
/interface ethernet switch qos profile
add name=cnp traffic-class=6 dscp=48 pcp=6
/interface ethernet switch qos map ip
add dscp=26 profile=roce-profile
add dscp=48 profile=cnp
/interface ethernet switch qos port
set [find] profile=default
